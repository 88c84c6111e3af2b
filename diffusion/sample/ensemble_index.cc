// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/ensemble_index.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "diffusion/router/statistics.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostExperts = 1024;

Result<nlohmann::json> read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return fail(ErrorCode::kNotFound, text("cannot read ", path, ": is this an ensemble folder?"));
  auto parsed = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return fail(ErrorCode::kCorrupt, text(path, " is not a JSON object"));
  return parsed;
}

// nlohmann's own exceptions say which key is missing or of another type.
Result<EnsembleIndex> parse_index(const std::string& path, const nlohmann::json& json) try {
  if (json.at("format").get<int>() != 1) {
    return fail(ErrorCode::kInvalid,
                text(path, ": format ", json.at("format").dump(), " is not known, expected 1"));
  }
  EnsembleIndex index;
  index.classes = json.at("classes").get<std::vector<std::string>>();
  index.model.classes = static_cast<std::uint32_t>(index.classes.size());
  index.model.image_size = json.at("image_size").get<std::uint32_t>();
  index.model.channels = json.at("channels").get<std::uint32_t>();
  const auto& model = json.at("model");
  index.model.width = model.at("width").get<std::uint32_t>();
  index.model.depth = model.at("depth").get<std::uint32_t>();
  index.model.heads = model.at("heads").get<std::uint32_t>();
  index.model.patch_size = model.at("patch_size").get<std::uint32_t>();
  index.model.caption_dim = model.value("caption_dim", 0U);
  index.model.interpolation_scale = model.value("interpolation_scale", 1.0);
  index.has_learned_router = json.value("router", "analytic") == "learned";
  const auto& experts = json.at("experts");
  if (experts.empty() || experts.size() > kMostExperts) {
    return fail(ErrorCode::kCorrupt, text(path, " lists ", experts.size(), " experts"));
  }
  for (const auto& expert : experts)
    index.indices.push_back(expert.at("index").get<std::int32_t>());
  const bool grows =
      std::ranges::adjacent_find(index.indices, std::greater_equal<>()) == index.indices.end();
  if (!grows || index.indices.front() < 0) {
    return fail(ErrorCode::kCorrupt,
                text(path, ": the experts' indices must be 0 or more, and grow"));
  }
  return index;
} catch (const nlohmann::json::exception& error) {
  return fail(ErrorCode::kCorrupt, text(path, ": ", error.what()));
}

Result<std::vector<std::int64_t>> read_label_counts(const std::string& path, std::size_t classes) {
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(path));
  ASSIGN_OR_RETURN(const storage::TensorView view, file.tensor("label_counts"));
  if (view.dtype != storage::DType::kI64 || view.shape != std::vector<std::uint64_t>{classes + 1}) {
    return fail(ErrorCode::kCorrupt, text(path, ": label_counts must be I64 [", classes + 1, "]"));
  }
  std::vector<std::int64_t> counts(classes + 1);
  std::memcpy(counts.data(), view.data.data(), view.data.size());
  for (const std::int64_t count : counts) {
    if (count < 0) return fail(ErrorCode::kCorrupt, text(path, ": a label count is negative"));
  }
  return counts;
}

// Its own link, or where that was lost on the way, the place in the model's
// folder that it pointed to.
std::string part_of(const std::string& folder, const std::string& name) {
  std::error_code error;
  const std::string linked = text(folder, "/", name);
  return fs::exists(linked, error) ? linked : text(folder, "/transformer/", name);
}

Result<std::vector<std::string>> shards_of(const std::string& index,
                                           const nlohmann::json& json) try {
  std::set<std::string> names;
  for (const auto& [tensor, name] : json.at("weight_map").items())
    names.insert(name.get<std::string>());
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (fs::path(name).filename() != name)
      return fail(ErrorCode::kCorrupt, text(index, " names a file outside its folder"));
    paths.push_back(fs::path(index).replace_filename(name).string());
  }
  if (paths.empty()) return fail(ErrorCode::kCorrupt, text(index, " names no file"));
  return paths;
} catch (const nlohmann::json::exception& error) {
  return fail(ErrorCode::kCorrupt, text(index, ": ", error.what()));
}

}  // namespace

Result<std::vector<std::string>> weights_files(const std::string& folder) {
  const std::string whole = folder + "/diffusion_pytorch_model.safetensors";
  const std::string index = whole + ".index.json";
  std::error_code error;
  if (fs::exists(whole, error) || !fs::exists(index, error)) return std::vector{whole};
  ASSIGN_OR_RETURN(const nlohmann::json json, read_json(index));
  return shards_of(index, json);
}

Result<std::vector<std::string>> EnsembleIndex::weights_paths(std::size_t expert) const {
  return weights_files(part_of(folder, text("expert_", indices[expert])));
}

std::string EnsembleIndex::router_folder() const { return part_of(folder, "router"); }

Result<std::vector<double>> EnsembleIndex::expert_shares(std::int32_t label) const {
  std::vector<double> shares;
  double total = 0;
  for (const std::vector<std::int64_t>& counts : label_counts) {
    double share = 0;
    if (label < 0) {
      for (const std::int64_t count : counts) share += static_cast<double>(count);
    } else if (static_cast<std::size_t>(label) + 1 < counts.size()) {
      share = static_cast<double>(counts[static_cast<std::size_t>(label)]);
    }
    shares.push_back(share);
    total += share;
  }
  if (total <= 0)
    return fail(ErrorCode::kInvalid, text("no expert has seen a sample of label ", label));
  for (double& share : shares) share /= total;
  return shares;
}

Result<EnsembleIndex> read_ensemble_index(const std::string& folder) {
  const std::string path = folder + "/ensemble.json";
  ASSIGN_OR_RETURN(const nlohmann::json json, read_json(path));
  ASSIGN_OR_RETURN(EnsembleIndex index, parse_index(path, json));
  TRY(validate(index.model));
  index.folder = folder;
  const std::string shared = index.router_folder() + "/router.safetensors";
  // The router reports a file that does not open; plain generation needs none
  // of it.
  if (const auto file = storage::Safetensors::open(shared)) {
    ASSIGN_OR_RETURN(index.latents, latent_scaling_in(*file, shared));
  }
  for (const std::int32_t expert : index.indices) {
    const std::string statistics =
        text(index.router_folder(), "/partition-", expert, ".safetensors");
    ASSIGN_OR_RETURN(std::vector<std::int64_t> counts,
                     read_label_counts(statistics, index.classes.size()));
    index.label_counts.push_back(std::move(counts));
  }
  return index;
}

}  // namespace skerry::diffusion
