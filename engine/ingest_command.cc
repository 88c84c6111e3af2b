// SPDX-License-Identifier: Apache-2.0
#include "engine/ingest_command.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "diffusion/data/ingest.h"
#include "engine/exit_code.h"

namespace skerry::engine {
namespace {

using diffusion::CaptionChoice;
using diffusion::IngestOptions;
using diffusion::IngestSummary;
using diffusion::Progress;
using Json = nlohmann::ordered_json;

struct Arguments {
  IngestOptions ingest;
  std::string features = "pca";
  std::string captions = "auto";
  std::optional<double> latent_scale, latent_shift;
  std::string progress = "text";
};

std::string safe_dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A line a report on stdout, for programs.
void report_json(const Progress& p) {
  const Json json{{"stage", p.stage}, {"done", p.done}, {"total", p.total}};
  std::printf("%s\n", safe_dump(json).c_str());
  std::fflush(stdout);
}

// One changing line on a terminal, one line a finished stage elsewhere; both on
// stderr.
void report_text(const Progress& p) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  const bool last = p.total > 0 && p.done == p.total;
  if (!terminal && !last) return;
  const std::string of = p.total > 0 ? text(" of ", p.total) : "";
  std::fprintf(stderr, "%s%-12s %llu%s%s", terminal ? "\r\033[K" : "", std::string(p.stage).c_str(),
               static_cast<unsigned long long>(p.done), of.c_str(), last ? "\n" : "");
}

Json summary_json(const IngestSummary& s, const std::string& output) {
  return Json{{"stage", "done"},
              {"output", output},
              {"samples", s.index.samples},
              {"fit", s.fit},
              {"test", s.test},
              {"channels", s.index.channels},
              {"image_size", s.index.image_size},
              {"classes", s.index.classes.size()},
              {"partition_samples", s.index.partition_samples},
              {"fine_centroids", s.fine_centroids},
              {"ratio", s.ratio},
              {"balanced", s.within_caps},
              {"resumed", s.resumed},
              {"captions", s.captions},
              {"uncaptioned", s.uncaptioned},
              {"captions_cut", s.cut_captions},
              {"captions_resumed", s.resumed_captions},
              {"skipped", s.index.skipped}};
}

void print_skipped(const IngestSummary& s) {
  if (s.index.skipped == 0) return;
  std::fprintf(stderr, "%llu skipped:\n", static_cast<unsigned long long>(s.index.skipped));
  for (const auto& image : s.index.skipped_examples) {
    std::fprintf(stderr, "  %s: %s\n", image.path.c_str(), image.reason.c_str());
  }
  if (s.index.skipped > s.index.skipped_examples.size()) std::fprintf(stderr, "  …\n");
}

void print_summary(const IngestSummary& s, const std::string& output) {
  std::string sizes;
  for (const std::uint64_t n : s.index.partition_samples)
    sizes += text(sizes.empty() ? "" : " ", n);
  print_skipped(s);
  std::printf(
      "%s: %llu images of %dx%dx%d, %zu classes; %llu + %llu held back; partitions %s (largest ÷ "
      "smallest "
      "%.2f%s)\n",
      output.c_str(), static_cast<unsigned long long>(s.index.samples), s.index.channels,
      s.index.image_size, s.index.image_size, s.index.classes.size(),
      static_cast<unsigned long long>(s.fit), static_cast<unsigned long long>(s.test),
      sizes.c_str(), s.ratio, s.within_caps ? "" : ", outside the caps 0.92 to 1.08");
}

void print_captions(const IngestSummary& s) {
  if (s.captions == 0) return;
  std::string words = text(s.captions, " captions, ", s.uncaptioned, " images without one; ");
  words += s.index.text ? text("a sample's caption has ",
                               human_bytes(static_cast<std::uint64_t>(s.caption_bytes)), ", ",
                               s.index.text->longest, " tokens at most")
                        : "the dataset holds none of them: that takes --text-encoder";
  if (s.cut_captions > 0)
    words += text("; ", s.cut_captions, " captions were cut to ", s.index.text->longest, " tokens");
  std::fprintf(stderr, "%s\n", words.c_str());
}

int run(Arguments& arguments) {
  if (arguments.latent_scale || arguments.latent_shift) {
    arguments.ingest.latents.scaling = diffusion::LatentScaling{
        .scale = arguments.latent_scale.value_or(1), .shift = arguments.latent_shift.value_or(0)};
  }
  arguments.ingest.captions = arguments.captions == "off"     ? CaptionChoice::kOff
                              : arguments.captions == "class" ? CaptionChoice::kClass
                                                              : CaptionChoice::kAuto;
  if (arguments.features != "pca") arguments.ingest.features = arguments.features;
  const bool json = arguments.progress == "json";
  const auto summary = diffusion::ingest(arguments.ingest, json ? report_json : report_text);
  if (!summary.has_value()) {
    std::fprintf(stderr, "ingest: %s\n", summary.error().message.c_str());
    return exit_code_of(summary.error().code);
  }
  print_captions(*summary);
  if (json) {
    print_skipped(*summary);
    std::printf("%s\n", safe_dump(summary_json(*summary, arguments.ingest.output)).c_str());
  } else {
    print_summary(*summary, arguments.ingest.output);
  }
  return kExitOk;
}

}  // namespace

void register_ingest_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  IngestOptions& options = arguments->ingest;
  CLI::App* command = app.add_subcommand(
      "ingest", "Turn images or latents into a dataset folder: shards, partitions, router");
  command
      ->add_option(
          "path", options.input,
          "Folder of images, IDX or CIFAR file (or its folder), WebDataset tar (or a folder of "
          "them); or of latents [N,C,S,S] .npy, with labels [N] where the name has labels for "
          "latents, or .safetensors, with a tensor latents and maybe labels")
      ->required();
  command->add_option("--out", options.output, "Folder to write; must not exist or be empty")
      ->required();
  command->add_option("--partitions", options.partitions, "Number of experts K")
      ->required()
      ->check(CLI::Range(1U, diffusion::kMaxPartitions));
  command
      ->add_option(
          "--image-size", options.image_size,
          "Side of the square images, not of latents; default: that of the first image if it is a "
          "square of at most 64 pixels, else 64")
      ->check(CLI::Range(diffusion::kMinImageSize, diffusion::kMaxImageSize));
  command
      ->add_option(
          "--features", arguments->features,
          "What images are grouped by: pca (principal components of the pixels or latents), or a "
          "file .npy or .safetensors with a row for each image, in the order in which they are "
          "read")
      ->capture_default_str();
  command->add_option(
      "--latent-scale", arguments->latent_scale,
      "What latents are multiplied by for training, and divided by before they are decoded: the "
      "autoencoder's scaling_factor, such as 0.18215; default: 1");
  command->add_option(
      "--latent-shift", arguments->latent_shift,
      "What is taken off before that, and added again: its shift_factor; default: 0");
  command->add_flag("--latents-scaled", options.latents.scaled,
                    "The latents are shifted and scaled so already: only note it");
  command
      ->add_option("--captions", arguments->captions,
                   "Captions of images: auto (a .txt or .caption of the same stem, metadata.jsonl, "
                   "or a WebDataset's txt or json), off, or class (the name of the class)")
      ->check(CLI::IsMember({"auto", "off", "class"}))
      ->capture_default_str();
  command->add_option(
      "--caption-embeddings", options.caption_embeddings,
      "A .safetensors file with embeddings [N,L,D] and mask [N,L], a row for each image in the "
      "order in which they are read, and null [n,D]. The dataset holds each distinct caption once");
  command
      ->add_option("--text-encoder", options.text_encoder,
                   "Encodes the captions: the folder of a T5 encoder (v1.0, v1.1, Flan) as "
                   "transformers writes it, with its spiece.model, or a pipeline's folder with "
                   "text_encoder and tokenizer. In fp32 on the CPU, in bf16 on a card")
      ->check([](const std::string& path) { return path.empty() ? "expected a path" : ""; });
  command->add_option("--longest", options.longest, "Tokens of a caption; a longer one is cut")
      ->check(CLI::Range(diffusion::kMinLongest, diffusion::kMaxLongest))
      ->capture_default_str();
  command
      ->add_option("--vae", options.vae,
                   "Encodes the images: the folder of an AutoencoderKL, whose config says the "
                   "scaling, or an encoder as TorchScript (images [n,3,S,S] in [-1,1] to latents "
                   "[n,C,s,s])")
      ->check([](const std::string& path) { return path.empty() ? "expected a path" : ""; });
  command->add_option("--device", options.device,
                      "CUDA device for --vae and --text-encoder; -1: the CPU");
  command->add_option("--seed", options.seed, "Same images, seed and threads: same bytes");
  command->add_option("--threads", options.threads, "Threads of matrix products")
      ->check(CLI::Range(1, 256));
  command
      ->add_option("--progress", arguments->progress, "text (on stderr) or json (lines on stdout)")
      ->check(CLI::IsMember({"text", "json"}));
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
