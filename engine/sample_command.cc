// SPDX-License-Identifier: Apache-2.0
#include "engine/sample_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "diffusion/sample/ensemble_index.h"
#include "diffusion/sample/image_grid.h"
#include "diffusion/sample/sample.h"
#include "engine/exit_code.h"

namespace skerry::engine {
namespace {

using diffusion::LabelAgreement;
using diffusion::Picture;
using diffusion::Samples;
using diffusion::SampleSpec;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t kWidestGrid = 20;
constexpr std::uint32_t kGridPixels = 900;  // about how wide a grid is made

struct Arguments {
  std::string folder, output, each, nearest;
  std::string solver = "euler", route = "ancestral", labels = "cyclic", router;
  std::uint64_t nearest_count = 5000;
  bool json = false;
  SampleSpec spec;
};

void show_progress(std::uint64_t done, std::uint64_t total) {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!terminal) return;
  std::fprintf(stderr, "\r\033[Ksampling %llu %%%s",
               static_cast<unsigned long long>(100 * done / total),
               done == total ? "\r\033[K" : "");
}

// A column for each class where the labels cycle, else a square.
std::uint32_t grid_columns(const Arguments& arguments, const Samples& samples) {
  const auto classes = static_cast<std::uint32_t>(samples.classes.size());
  const bool cyclic = !arguments.spec.label && arguments.spec.prompt_embeddings.empty() &&
                      arguments.spec.prompts.empty() && classes > 1 && classes <= kWidestGrid &&
                      samples.labels.size() >= classes;
  return cyclic ? classes
                : static_cast<std::uint32_t>(
                      std::ceil(std::sqrt(static_cast<double>(samples.labels.size()))));
}

Result<void> write_pictures(const Arguments& arguments, const Samples& samples) {
  std::vector<Picture> pictures;
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    pictures.push_back(
        diffusion::picture_of(samples.pixels, samples.channels, samples.image_size, i));
  }
  if (!arguments.output.empty()) {
    const std::uint32_t columns = grid_columns(arguments, samples);
    const std::uint32_t scale = std::clamp(kGridPixels / (columns * samples.image_size), 1U, 16U);
    TRY(diffusion::write_png(arguments.output, diffusion::make_grid(pictures, columns, scale)));
  }
  if (arguments.each.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(arguments.each, error);
  if (error)
    return fail(ErrorCode::kIo, text("cannot make folder ", arguments.each, ": ", error.message()));
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const std::string number = text(i);
    const std::string zeros(number.size() < 5 ? 5 - number.size() : 0, '0');
    TRY(diffusion::write_png(text(arguments.each, "/", zeros, number, ".png"), pictures[i]));
  }
  return {};
}

void report(const Arguments& arguments, const Samples& samples, const LabelAgreement* agreement,
            double seconds) {
  if (!arguments.json) {
    std::printf("%zu images in %.1f s%s%s\n", samples.labels.size(), seconds,
                arguments.output.empty() ? "" : ": ", arguments.output.c_str());
    if (agreement != nullptr) std::printf("label agreement %.3f\n", agreement->share());
    return;
  }
  Json json{{"samples", samples.labels.size()},
            {"route", arguments.route},
            {"solver", arguments.solver},
            {"steps", arguments.spec.steps},
            {"guidance", arguments.spec.guidance},
            {"seed", arguments.spec.seed},
            {"seconds", seconds},
            {"picture", arguments.output},
            {"labels", samples.labels},
            {"experts", samples.experts}};
  if (agreement != nullptr) json["label_agreement"] = agreement->share();
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

// Said before anything is drawn.
Result<void> check_decodable(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const diffusion::EnsembleIndex index,
                   diffusion::read_ensemble_index(arguments.folder));
  if (index.latents && !arguments.nearest.empty()) {
    return fail(ErrorCode::kInvalid,
                "--nearest compares samples with a shard of images: the shards of " +
                    arguments.folder + " hold latents; leave it out");
  }
  const bool pictures = !arguments.output.empty() || !arguments.each.empty();
  if (!index.latents || !arguments.spec.autoencoder.empty() || !pictures) return {};
  return fail(
      ErrorCode::kInvalid,
      text(arguments.folder, " draws latents of ", index.model.channels,
           " channels: --vae DIR|FILE decodes them, with the folder of the AutoencoderKL that made "
           "them "
           "(config.json and diffusion_pytorch_model.safetensors), or its decoder as TorchScript"));
}

Result<void> sample(Arguments& arguments) {
  SampleSpec& spec = arguments.spec;
  if (arguments.output.empty() && arguments.each.empty() && !arguments.json) {
    return fail(ErrorCode::kInvalid,
                "expected -o FILE.png for a grid, or --each DIR for single images");
  }
  ASSIGN_OR_RETURN(spec.solver, diffusion::parse_solver(arguments.solver));
  ASSIGN_OR_RETURN(spec.route, diffusion::parse_route(arguments.route));
  if (!arguments.router.empty()) {
    ASSIGN_OR_RETURN(spec.router, diffusion::parse_router(arguments.router));
  }
  if (arguments.labels == "none") spec.label = -1;
  TRY(check_decodable(arguments));
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const Samples samples,
                   diffusion::sample_ensemble(arguments.folder, spec, show_progress));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TRY(write_pictures(arguments, samples));
  if (arguments.nearest.empty()) {
    report(arguments, samples, nullptr, seconds);
    return {};
  }
  ASSIGN_OR_RETURN(
      const LabelAgreement agreement,
      diffusion::nearest_label_agreement(samples, arguments.nearest, arguments.nearest_count));
  report(arguments, samples, &agreement, seconds);
  return {};
}

int run(Arguments& arguments) {
  const Result<void> done = sample(arguments);
  if (done) return kExitOk;
  std::fprintf(stderr, "sample: %s\n", done.error().message.c_str());
  return exit_code_of(done.error().code);
}

}  // namespace

void register_sample_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  SampleSpec& spec = arguments->spec;
  // Threads that wait for each other on a busy machine are far slower than one
  // alone.
  spec.threads = std::max(1U, std::thread::hardware_concurrency() / 2);
  CLI::App* command = app.add_subcommand("sample", "Draw images from an ensemble folder");
  command->add_option("folder", arguments->folder, "Ensemble folder, from `skerry ensemble fetch`")
      ->required();
  command->add_option("-n,--count", spec.count, "How many images")->capture_default_str();
  command->add_option("--steps", spec.steps, "Steps of the solver")->capture_default_str();
  command->add_option("--solver", arguments->solver, "euler, heun or adams")->capture_default_str();
  command->add_option("--guidance", spec.guidance, "Guidance scale; 1: none")
      ->capture_default_str();
  command->add_option("--route", arguments->route, "ancestral, top1, top2 or full")
      ->capture_default_str();
  command->add_option("--router", arguments->router,
                      "analytic or learned; without it, what the run trained");
  command->add_option("--expert", spec.expert, "This one draws every image, whatever the route");
  command
      ->add_option(
          "--resident", spec.resident,
          "Experts on the device at a time, the others wait on the disk; 0: as many as fit")
      ->capture_default_str();
  auto* label =
      command->add_option("--label", spec.label, "One class, by number, for every image; -1: none");
  command->add_option("--labels", arguments->labels, "cyclic: the classes in turn; none")
      ->check(CLI::IsMember({"cyclic", "none"}))
      ->excludes(label);
  auto* embeddings =
      command->add_option("--prompt-embeddings", spec.prompt_embeddings,
                          "Prompts for an ensemble trained on captions, in turn: .safetensors with "
                          "embeddings [N,L,D], mask [N,L] and null [n,D], the null caption");
  auto* encoder = command->add_option(
      "--text-encoder", spec.text_encoder,
      "What encodes --prompt: the folder of the T5 encoder of the dataset's captions");
  command
      ->add_option("--prompt", spec.prompts,
                   "What to draw, for an ensemble trained on captions; several are taken in turn")
      ->needs(encoder)
      ->excludes(embeddings);
  command->add_option("--vae", spec.autoencoder,
                      "What decodes latents: the folder of an AutoencoderKL, or a file of "
                      "TorchScript from [N,C,s,s] to "
                      "[N,3,S,S] in [-1,1]");
  command->add_option("--seed", spec.seed, "The same seed draws the same images")
      ->capture_default_str();
  command->add_option("-o,--output", arguments->output, "Picture of all images (PNG)");
  command->add_option("--each,--images", arguments->each, "Folder for single images");
  command->add_flag("--json", arguments->json, "What was drawn, as JSON on stdout");
  command->add_option(
      "--nearest", arguments->nearest,
      "Shard of real images: report how many samples have a nearest one of the label asked for");
  command->add_option("--nearest-count", arguments->nearest_count, "Images of that shard")
      ->capture_default_str();
  command->add_option("--batch-size", spec.batch_size, "Images at once")->capture_default_str();
  command->add_option("--threads", spec.threads, "CPU threads")->capture_default_str();
  command
      ->add_option("--precision", spec.precision, "fp32, or bf16 for the experts' matrix products")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--device", spec.device, "CUDA device where there is one; -1: the CPU")
      ->capture_default_str();
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
