// SPDX-License-Identifier: Apache-2.0
// dataset …: what runs train on.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>

#include "base/progress.h"
#include "base/text.h"
#include "cli/dataset/dataset_index.h"
#include "cli/dataset/ingest.h"
#include "cli/dataset/upload.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "protocol/limits.h"
#include "protocol/validate.h"

namespace skerry::cli {
namespace {

Json file_json(const pb::DatasetFile& file) {
  return {{"name", printable(file.object().name())},
          {"role", file.role()},
          {"partition", file.partition() < 0 ? Json() : Json(file.partition())},
          {"samples", file.samples()},
          {"bytes", file.object().bytes()},
          {"manifest", hex_or_null(file.object().manifest())}};
}

Json text_json(const pb::DatasetInfo& dataset) {
  if (dataset.caption_dim() == 0) return nullptr;
  return {{"dim", dataset.caption_dim()},
          {"encoder", printable(dataset.text_encoder())},
          {"longest", dataset.caption_tokens()}};
}

Json to_json(const pb::DatasetInfo& dataset, bool with_files) {
  Json classes = Json::array();
  for (const std::string& name : dataset.classes()) classes.push_back(printable(name));
  Json partition_samples = Json::array();
  for (const std::uint64_t samples : dataset.partition_samples())
    partition_samples.push_back(samples);
  Json out = {{"name", dataset.name()},
              {"state", dataset.state()},
              {"partitions", dataset.partitions()},
              {"samples", dataset.samples()},
              {"channels", dataset.channels()},
              {"image_size", dataset.image_size()},
              {"latents", dataset.latents()},
              {"text", text_json(dataset)},
              {"classes", std::move(classes)},
              {"bytes", dataset.bytes()},
              {"received_bytes", dataset.received_bytes()},
              {"partition_samples", std::move(partition_samples)},
              {"created_at", time_or_null(dataset.created_unix_ms())}};
  if (!with_files) return out;
  Json files = Json::array();
  for (const pb::DatasetFile& file : dataset.files()) files.push_back(file_json(file));
  out["files"] = std::move(files);
  return out;
}

void tell_skipped(Command& command, const DatasetIndex& index) {
  if (index.skipped == 0) return;
  command.tell(text(index.skipped, " files were skipped:"));
  for (const auto& [path, reason] : index.skipped_examples) {
    command.tell(text("  ", printable(path), ": ", printable(reason)));
  }
}

// Captions can be far larger than images: a token of T5-XXL has 4096 numbers.
void tell_caption_size(Command& command, const DatasetIndex& index) {
  if (!index.text) return;
  constexpr std::uint64_t kLargeBytes = 50'000;
  std::uint64_t bytes = 0, samples = 0;
  for (const DatasetFileEntry& file : index.files) {
    if (file.role != "captions") continue;
    bytes += file.bytes;
    samples += file.samples;
  }
  const std::uint64_t each = samples == 0 ? 0 : bytes / samples;
  command.tell(text("captions: ", human_bytes(bytes), ", ", human_bytes(each), " a sample"));
  if (each <= kLargeBytes) return;
  command.tell(
      text("  that is above 50 KB a sample: a smaller encoder, such as google/flan-t5-base ",
           "with 768 numbers a token in place of ", index.text->dim,
           ", or a smaller --longest, makes it less"));
}

// An ingestion of hours should not end at a missing context, a role or a name
// that is taken.
Result<void> check_permitted(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(AdminClient * client, command.client());
  if (client->place().role == pb::ROLE_VIEWER) {
    return fail(ErrorCode::kUnauthorised, "a viewer may only read: log in with an admin's token");
  }
  const Result<pb::DatasetInfo> there = one_dataset(command, name);
  if (!there.has_value()) {
    if (there.error().code == ErrorCode::kNotFound) return {};
    return there.error();
  }
  if (there->state() == "ready") {
    command.tell(text("a dataset named ", name, " is there already, of ", there->samples(),
                      " samples: only the same images with the same options will be accepted"));
  }
  return {};
}

Result<int> add_dataset(Command& command, const IngestOptions& options) {
  TRY(protocol::validate_name(options.name, "dataset name"));
  TRY(check_permitted(command, options.name));
  const bool ingested = is_dataset_folder(options.source);
  if (!ingested && options.partitions == 0) {
    return fail(ErrorCode::kInvalid,
                "--partitions K is missing: into how many parts, one for each expert?");
  }
  const std::string folder_hint =
      ingested ? options.source : ingest_folder(options, command.around);
  command.around.set_parting_words(
      text("the same command goes on from here (", folder_hint, ")\n"));
  std::string folder = options.source;
  if (!ingested) {
    ASSIGN_OR_RETURN(folder, ingest(options, command.around));
  }
  ASSIGN_OR_RETURN(const DatasetIndex index, read_dataset_index(folder));
  if (ingested && options.partitions != 0 && options.partitions != index.partitions) {
    return fail(ErrorCode::kInvalid,
                text(folder, " is ingested already, into ", index.partitions, " partitions, not ",
                     options.partitions, ": leave --partitions out"));
  }
  if (ingested) tell_skipped(command, index);  // else the engine has
  tell_caption_size(command, index);
  const Result<void> uploaded = upload(command, options.name, index);
  if (!uploaded.has_value() && uploaded.error().code == ErrorCode::kConflict) {
    return fail(ErrorCode::kConflict,
                text(uploaded.error().message, "; what was ingested stays in ", folder,
                     ": `skerry dataset add NAME ", folder, "` uploads it"));
  }
  TRY(uploaded);
  command.around.set_parting_words("");
  std::error_code ignored;
  if (!ingested) std::filesystem::remove_all(folder, ignored);
  if (command.json()) {
    ASSIGN_OR_RETURN(const pb::DatasetInfo shown, one_dataset(command, options.name));
    print_object(command.out(), to_json(shown, false));
  } else {
    command.tell(text(options.name, " is ready: ", index.samples, " samples in ", index.partitions,
                      " partitions"));
  }
  return kExitOk;
}

Result<int> list_datasets(Command& command) {
  ASSIGN_OR_RETURN(
      const std::vector<pb::DatasetInfo> datasets,
      list_all<pb::DatasetInfo>(
          command, &pb::AdminRequest::mutable_dataset_list,
          [](const pb::AdminReply& reply, std::vector<pb::DatasetInfo>& items, std::string& next) {
            if (!reply.has_datasets()) return false;
            items.insert(items.end(), reply.datasets().datasets().begin(),
                         reply.datasets().datasets().end());
            next = reply.datasets().next();
            return true;
          }));
  Json items = Json::array();
  Table table({"NAME", "STATE", "PARTITIONS", "SAMPLES", "IMAGES", "CLASSES", "SIZE", "CREATED"});
  for (const pb::DatasetInfo& dataset : datasets) {
    items.push_back(to_json(dataset, false));
    table.add({dataset.name(),
               {dataset.state(), paint_of_state(dataset.state())},
               text(dataset.partitions()),
               text(dataset.samples()),
               text(dataset.image_size(), "x", dataset.image_size(), "x", dataset.channels(),
                    dataset.latents() ? " latents" : ""),
               text(dataset.classes_size()),
               human_bytes(dataset.bytes()),
               ago(dataset.created_unix_ms(), command.around.unix_ms())});
  }
  if (command.json()) {
    print_items(command.out(), std::move(items));
  } else {
    table.print(command.out(), command.colour());
  }
  return kExitOk;
}

Result<int> show_dataset(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::DatasetInfo dataset, one_dataset(command, name));
  if (command.json()) {
    print_object(command.out(), to_json(dataset, true));
    return kExitOk;
  }
  std::ostream& out = command.out();
  out << dataset.name() << "  "
      << painted(dataset.state(), paint_of_state(dataset.state()), command.colour()) << '\n'
      << dataset.samples() << (dataset.latents() ? " latents of " : " images of ")
      << dataset.image_size() << "x" << dataset.image_size() << " with " << dataset.channels()
      << (dataset.channels() == 1 ? " channel" : " channels") << ", " << dataset.classes_size()
      << " classes, " << human_bytes(dataset.bytes());
  if (dataset.received_bytes() < dataset.bytes())
    out << " (" << human_bytes(dataset.received_bytes()) << " received)";
  if (dataset.caption_dim() > 0) {
    out << "\ncaptions of at most " << dataset.caption_tokens() << " tokens with "
        << dataset.caption_dim() << " numbers each, by " << printable(dataset.text_encoder());
  }
  out << "\n\n";
  Table table({"FILE", "ROLE", "PARTITION", "SAMPLES", "SIZE", "MANIFEST"});
  for (const pb::DatasetFile& file : dataset.files()) {
    table.add({file.object().name(), file.role(),
               file.partition() < 0 ? "-" : text(file.partition()), text(file.samples()),
               human_bytes(file.object().bytes()), to_hex(file.object().manifest()).substr(0, 12)});
  }
  table.print(out, command.colour());
  return kExitOk;
}

Result<int> delete_dataset(Command& command, const std::string& name) {
  TRY(command.confirm(text("Delete the dataset ", name, " from the coordinator?")));
  return command.carry_out("dataset", &pb::AdminRequest::mutable_dataset_delete, name, "deleted");
}

void add_named(CLI::App& group, Command& command, const std::string& verb,
               const std::string& meaning, const std::string& example,
               Result<int> (*action)(Command&, const std::string&)) {
  CLI::App* added = group.add_subcommand(verb, meaning);
  auto name = std::make_shared<std::string>();
  added->add_option("NAME", *name, "the dataset")->required()->type_name("");
  added->footer("Example:\n  " + example);
  added->callback([&command, name, action] {
    command.chosen = [&command, name, action] { return action(command, *name); };
  });
}

void add_add(CLI::App& group, Command& command) {
  CLI::App* added =
      group.add_subcommand("add", "Partitions images and hands them to the coordinator");
  auto options = std::make_shared<IngestOptions>();
  added->add_option("NAME", options->name, "what runs will call it")->required()->type_name("");
  added
      ->add_option(
          "PATH", options->source,
          "folders of JPEG, PNG or WebP (a folder is a class), IDX or CIFAR files, WebDataset "
          "tars, "
          "latents [N,C,S,S] (.npy, with labels in a file of that name with labels for latents, "
          ".safetensors, or .npy in a WebDataset), or an ingested dataset")
      ->required()
      ->type_name("");
  added
      ->add_option("--partitions", options->partitions,
                   "parts of similar images; each gets an expert")
      ->check(CLI::Range(std::uint32_t{1}, protocol::kPartitions))
      ->type_name("K");
  added
      ->add_option("--image-size", options->image_size,
                   "side of the square that images, not latents, are brought to")
      ->check(CLI::Range(4U, 1024U))
      ->type_name("N");
  added
      ->add_option("--features", options->features,
                   "what similarity is measured by: pca, or a file .npy or .safetensors with a row "
                   "for each image")
      ->type_name("KIND|FILE");
  added
      ->add_option("--latent-scale", options->latent_scale,
                   "what latents are multiplied by for training and divided by before `skerry "
                   "sample --vae` decodes "
                   "them: the autoencoder's scaling_factor, such as 0.18215; without it 1")
      ->check(CLI::Number)
      ->type_name("X");
  added
      ->add_option("--latent-shift", options->latent_shift,
                   "what is taken off before that and added again: its shift_factor; without it 0")
      ->check(CLI::Number)
      ->type_name("X");
  added->add_flag("--latents-scaled", options->latents_scaled,
                  "the latents are shifted and scaled so already: only notes it");
  added
      ->add_option("--vae", options->vae,
                   "encodes the images to latents, here: the folder of an AutoencoderKL, whose "
                   "config says the scaling, or an encoder as TorchScript. `skerry sample --vae` "
                   "decodes with the same")
      ->check([](const std::string& path) { return path.empty() ? "expected a path" : ""; })
      ->type_name("DIR|FILE");
  added
      ->add_option("--captions", options->captions,
                   "captions of the images: auto (a .txt or .caption of the same stem, "
                   "metadata.jsonl, or a WebDataset's txt or json), off, or class (the name of "
                   "the class); without it auto")
      ->check(CLI::IsMember({"auto", "off", "class"}))
      ->type_name("KIND");
  added
      ->add_option("--text-encoder", options->text_encoder,
                   "encodes the captions, here: the folder of a T5 encoder with its spiece.model, "
                   "or a pipeline's folder with text_encoder and tokenizer")
      ->check([](const std::string& path) { return path.empty() ? "expected a path" : ""; })
      ->type_name("DIR");
  added
      ->add_option("--longest", options->longest,
                   "tokens of a caption, a longer one is cut; without it 300")
      ->check(CLI::Range(2U, 1024U))
      ->type_name("N");
  added
      ->add_option("--caption-embeddings", options->caption_embeddings,
                   "captions that another encoder has encoded: a .safetensors file with embeddings "
                   "[N,L,D] and mask [N,L], a row for each image in the order in which they are "
                   "read, and null [n,D]")
      ->type_name("FILE");
  added->add_option("--seed", options->seed, "of the split and the clustering")->type_name("N");
  added->footer(
      "Example:\n  skerry dataset add birds ~/images/birds --partitions 8 --image-size 64\n"
      "  skerry dataset add birds ~/images/birds --partitions 8 --image-size 256 --vae sdxl-vae\n"
      "  skerry dataset add birds ~/birds --partitions 8 --image-size 256 --vae sigma/vae "
      "--text-encoder sigma\n"
      "  skerry dataset add birds ~/birds-latents.npy --partitions 8 --latent-scale 0.18215\n"
      "Runs skerry-engine here, then uploads. An interrupted call goes on where it was.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return add_dataset(command, *options); };
  });
}

}  // namespace

void add_dataset_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("dataset", "What runs train on");
  group->require_subcommand(1);
  add_add(*group, command);
  CLI::App* list = group->add_subcommand("list", "Lists the datasets");
  list->footer("Example:\n  skerry dataset list -o json");
  list->callback([&command] { command.chosen = [&command] { return list_datasets(command); }; });
  add_named(*group, command, "show", "Shows one dataset and its files", "skerry dataset show birds",
            show_dataset);
  add_named(*group, command, "delete", "Deletes a dataset that no run needs",
            "skerry dataset delete birds --yes", delete_dataset);
}

}  // namespace skerry::cli
