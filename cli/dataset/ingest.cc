// SPDX-License-Identifier: Apache-2.0
#include "cli/dataset/ingest.h"

#include <unistd.h>

#include <filesystem>
#include <ostream>

#include "base/hash.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/dataset/dataset_index.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"
#include "storage/folder_lock.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> engine_words(const std::string& engine, const IngestOptions& options,
                                      const std::string& folder) {
  std::vector<std::string> words = {engine, "ingest",       options.source,           "--out",
                                    folder, "--partitions", text(options.partitions), "--progress",
                                    "json"};
  if (options.image_size > 0) words.insert(words.end(), {"--image-size", text(options.image_size)});
  if (!options.features.empty()) words.insert(words.end(), {"--features", options.features});
  if (!options.latent_scale.empty())
    words.insert(words.end(), {"--latent-scale", options.latent_scale});
  if (!options.latent_shift.empty())
    words.insert(words.end(), {"--latent-shift", options.latent_shift});
  if (options.latents_scaled) words.emplace_back("--latents-scaled");
  if (!options.vae.empty()) words.insert(words.end(), {"--vae", options.vae});
  if (!options.captions.empty()) words.insert(words.end(), {"--captions", options.captions});
  if (!options.caption_embeddings.empty())
    words.insert(words.end(), {"--caption-embeddings", options.caption_embeddings});
  if (!options.text_encoder.empty())
    words.insert(words.end(), {"--text-encoder", options.text_encoder});
  if (options.longest > 0) words.insert(words.end(), {"--longest", text(options.longest)});
  if (options.seed) words.insert(words.end(), {"--seed", text(*options.seed)});
  return words;
}

// {"stage": …, "done": n, "total": n} while it works, {"stage": "done",
// "ratio": x, …} at its end; anything else is a line for the person.
void show_line(const std::string& line, Progress& progress, Surroundings& around) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    around.err() << printable(line) << std::endl;
    return;
  }
  const std::string stage =
      json.value("stage", Json()).is_string() ? json["stage"].get<std::string>() : "";
  if (stage == "done") {
    const Json ratio = json.value("ratio", Json());
    progress.set_what("");
    if (ratio.is_number()) {
      around.err() << "the largest partition has " << fixed(ratio.get<double>(), 2)
                   << " times the samples of the smallest" << std::endl;
    }
    return;
  }
  const auto number = [&](const char* key) {
    const Json value = json.value(key, Json());
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  };
  progress.set_what(printable(stage));
  progress.show(number("done"), number("total"));
}

}  // namespace

std::string ingest_folder(const IngestOptions& options, const Surroundings& around) {
  std::error_code error;
  const fs::path source = fs::weakly_canonical(options.source, error);
  std::string key = text(source.string(), '\n', options.partitions, '\n', options.image_size, '\n',
                         options.features, '\n', options.seed ? text(*options.seed) : "");
  if (!options.latent_scale.empty() || !options.latent_shift.empty() || options.latents_scaled)
    key +=
        text('\n', options.latent_scale, '\n', options.latent_shift, '\n', options.latents_scaled);
  if (!options.vae.empty()) {
    const fs::path vae = fs::weakly_canonical(options.vae, error);
    key += text('\n', vae.string());
  }
  if (!options.captions.empty()) key += text("\ncaptions ", options.captions);
  for (const std::string& path : {options.caption_embeddings, options.text_encoder})
    if (!path.empty()) key += text("\ntext ", fs::weakly_canonical(path, error).string());
  if (options.longest > 0) key += text("\nlongest ", options.longest);
  const std::string name = text(".skerry-ingest-", options.name, "-", blake2b(key).short_hex());
  const fs::path beside = source.parent_path();
  if (!beside.empty() && ::access(beside.c_str(), W_OK) == 0) return (beside / name).string();
  return around.environment("TMPDIR").value_or("/tmp") + "/" + name;
}

Result<std::string> ingest(const IngestOptions& options, Surroundings& around) {
  std::error_code error;
  if (options.captions == "class" && options.text_encoder.empty()) {
    return fail(ErrorCode::kInvalid,
                "--captions class names the classes for an encoder: add --text-encoder DIR");
  }
  if (!fs::exists(options.source, error)) {
    return fail(ErrorCode::kNotFound,
                text(options.source,
                     " is not there: expected a folder of images, IDX or CIFAR files or "
                     "WebDataset tars, latents, or an ingested dataset"));
  }
  const std::string folder = ingest_folder(options, around);
  ASSIGN_OR_RETURN(
      const UniqueFd held,
      storage::lock_folder(folder, text("another `skerry dataset add` is ingesting ",
                                        options.source, " into ", folder, ": wait for it")));
  if (is_dataset_folder(folder)) {
    around.err() << "going on with what was ingested before: " << folder << std::endl;
    return folder;
  }
  const Result<std::string> engine = around.find_program("skerry-engine");
  if (!engine.has_value()) {
    fs::remove_all(folder, error);
    return engine.error();
  }
  around.err() << "ingesting " << options.source << " into " << options.partitions << " partitions"
               << std::endl;
  Progress progress(around, "ingest", Progress::Unit::kCount);
  ASSIGN_OR_RETURN(const int status, around.run_program(engine_words(*engine, options, folder),
                                                        [&](const auto& line) {
                                                          show_line(line, progress, around);
                                                        }));
  if (status != 0) {
    fs::remove_all(folder, error);
    return fail(code_of_engine(status), text("ingestion of ", options.source, " failed (status ",
                                             status, "); the reason stands above"));
  }
  return folder;
}

}  // namespace skerry::cli
