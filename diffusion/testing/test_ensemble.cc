// SPDX-License-Identifier: Apache-2.0
#include "diffusion/testing/test_ensemble.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text.h"
#include "diffusion/train/train.h"
#include "storage/safetensors.h"

namespace skerry::diffusion::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<std::string> shards_of(const Json& index, const std::string& dataset,
                                   std::uint32_t expert) {
  std::vector<std::string> out;
  for (const Json& file : index["files"]) {
    if (file["role"] == "shard" && file["partition"] == expert)
      out.push_back(dataset + "/" + file["name"].get<std::string>());
  }
  return out;
}

// The EMA weights of a checkpoint, by their own names.
Result<void> export_weights(const std::string& checkpoint, const std::string& folder) {
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(checkpoint));
  std::vector<storage::TensorView> weights;
  for (const storage::TensorInfo& info : file.header().tensors) {
    if (!info.name.starts_with("ema/")) continue;
    weights.push_back(file.view(info));
    weights.back().name = info.name.substr(4);
  }
  fs::create_directories(folder);
  return storage::write_safetensors(folder + "/diffusion_pytorch_model.safetensors", weights,
                                    {{"format", "pt"}});
}

}  // namespace

Result<void> train_ensemble(const std::string& dataset, const std::string& ensemble,
                            ModelSpec model, TrainSpec train) {
  const Json index = Json::parse(std::ifstream(dataset + "/dataset.json"));
  model.image_size = index["image_size"];
  model.channels = index["channels"];
  model.classes = static_cast<std::uint32_t>(index["classes"].size());
  Json experts = Json::array();
  fs::create_directories(ensemble + "/router");
  for (std::uint32_t k = 0; k < index["partitions"].get<std::uint32_t>(); ++k) {
    train.expert = k;
    ASSIGN_OR_RETURN(Trainer trainer, Trainer::create(model, train, shards_of(index, dataset, k)));
    while (trainer.steps_done() < train.steps) TRY(trainer.step());
    const std::string folder = text(ensemble, "/expert_", k),
                      checkpoint = text(ensemble, "/checkpoint-", k);
    TRY(trainer.write_checkpoint(checkpoint));
    TRY(export_weights(checkpoint, folder));
    const std::string partition = text("/partition-", k, ".safetensors");
    fs::copy_file(dataset + partition, ensemble + "/router" + partition);
    experts.push_back({{"index", k}});
  }
  fs::copy_file(dataset + "/router.safetensors", ensemble + "/router/router.safetensors");
  std::ofstream(ensemble + "/ensemble.json") << Json{{"format", 1},
                                                     {"classes", index["classes"]},
                                                     {"image_size", model.image_size},
                                                     {"channels", model.channels},
                                                     {"experts", experts},
                                                     {"model",
                                                      {{"width", model.width},
                                                       {"depth", model.depth},
                                                       {"heads", model.heads},
                                                       {"patch_size", model.patch_size}}}};
  return {};
}

}  // namespace skerry::diffusion::testing
