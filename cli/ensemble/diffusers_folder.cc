// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/diffusers_folder.h"

#include <cmath>
#include <filesystem>
#include <set>

#include "base/text.h"
#include "cli/ensemble/export_expert.h"
#include "cli/shell/output.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;
constexpr auto kVersion = "0.32.0";  // of diffusers, whose form of these files this is

Result<void> write_json(const std::string& path, const Json& json) {
  return write_text_file(path, json.dump(2) + "\n");
}

// Pixels are drawn by the pipeline of the folder; latents by the stock one,
// which the user gives an autoencoder. A class of the folder's would take the
// place of DiTPipeline even where that one is asked for. What captions
// condition is drawn by the stock one always.
Json model_index(const std::string& folder, const pb::EnsembleReply& ensemble) {
  const pb::ModelSpec& model = ensemble.run().model();
  const Json pipeline = model.caption_dim() > 0       ? Json("PixArtSigmaPipeline")
                        : draws_pixels(folder, model) ? Json{"pipeline", "SkerryEnsemblePipeline"}
                                                      : Json("DiTPipeline");
  Json index = {{"_class_name", pipeline},
                {"_diffusers_version", kVersion},
                {"scheduler", {"diffusers", "UniPCMultistepScheduler"}},
                {"transformer", {"skerry_ensemble", "SkerryEnsemble"}}};
  for (int i = 0; i < ensemble.dataset().classes_size(); ++i)
    index["id2label"][text(i)] = ensemble.dataset().classes(i);
  return index;
}

Json ensemble_config(const pb::EnsembleReply& ensemble) {
  const pb::ModelSpec& model = ensemble.run().model();
  std::set<std::uint32_t> experts;
  for (const pb::EnsembleExpert& expert : ensemble.experts()) experts.insert(expert.index());
  Json config = {{"_class_name", "SkerryEnsemble"},
                 {"_diffusers_version", kVersion},
                 {"auto_map", {{"AutoModel", "skerry_ensemble.SkerryEnsemble"}}},
                 {"expert_indices", experts},
                 {"in_channels", model.channels()},
                 {"num_classes", model.classes()},
                 {"out_channels", model.channels()},
                 {"route", "ancestral"},
                 {"sample_size", model.image_size()}};
  if (model.caption_dim() > 0) config["expert_class"] = class_of_expert(model);
  return config;
}

// Of diffusers' schedulers the multistep ones fit both our velocity and the
// stock DiTPipeline.
Json scheduler_config() {
  return {{"_class_name", "UniPCMultistepScheduler"},
          {"_diffusers_version", kVersion},
          {"flow_shift", 1.0},
          {"num_train_timesteps", 1000},
          {"prediction_type", "flow_prediction"},
          {"use_flow_sigmas", true}};
}

Result<void> make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return system_error("make the folder", path, error.value());
  return {};
}

Result<void> link_to_transformer(const std::string& folder, const std::string& name) {
  const std::string link = text(folder, "/", name), target = text("transformer/", name);
  std::error_code error;
  fs::remove_all(link, error);  // an interrupted fetch may have come so far
  fs::create_directory_symlink(target, link, error);
  if (!error) return {};
  fs::copy(text(folder, "/", target), link, fs::copy_options::recursive, error);
  if (error) return system_error("write", link, error.value());
  return {};
}

}  // namespace

// A file that does not open counts as unscaled here. Callers that need the
// router's file report it.
std::optional<LatentScaling> latent_scaling(const std::string& ensemble) {
  const auto file = storage::Safetensors::open(router_folder(ensemble) + "/router.safetensors");
  if (!file.has_value()) return std::nullopt;
  const auto scale = storage::number_in<double>(file->header().metadata, "latent_scale"),
             shift = storage::number_in<double>(file->header().metadata, "latent_shift");
  if (!scale || !shift || !std::isfinite(*scale) || !std::isfinite(*shift) || *scale <= 0)
    return std::nullopt;
  return LatentScaling{.scale = *scale, .shift = *shift};
}

bool draws_pixels(const std::string& ensemble, const pb::ModelSpec& model) {
  return (model.channels() == 1 || model.channels() == 3) && !latent_scaling(ensemble);
}

std::string expert_folder(const std::string& ensemble, std::uint32_t expert) {
  return text(ensemble, "/transformer/expert_", expert);
}
std::string router_folder(const std::string& ensemble) { return ensemble + "/transformer/router"; }

Result<void> write_diffusers_files(const std::string& folder, const pb::EnsembleReply& ensemble) {
  TRY(make_folder(folder + "/scheduler"));
  TRY(write_json(folder + "/model_index.json", model_index(folder, ensemble)));
  TRY(write_json(folder + "/transformer/config.json", ensemble_config(ensemble)));
  TRY(write_json(folder + "/scheduler/scheduler_config.json", scheduler_config()));
  TRY(write_text_file(folder + "/transformer/skerry_ensemble.py", kEnsembleScript));
  TRY(write_text_file(folder + "/pipeline.py", kPipelineScript));
  for (const pb::EnsembleExpert& expert : ensemble.experts())
    TRY(link_to_transformer(folder, text("expert_", expert.index())));
  return link_to_transformer(folder, "router");
}

}  // namespace skerry::cli
