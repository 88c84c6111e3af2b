// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/weight_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;
using storage::DType;

template <class Numbers>
std::string shown(const Numbers& shape) {
  std::string out = "[";
  for (const auto n : shape) out += text(out.size() > 1 ? ", " : "", n);
  return out + "]";
}

// The files of an index, which maps each tensor to one of them.
Result<std::set<std::string>> listed_files(const std::string& path) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty())
    return fail(ErrorCode::kCorrupt, text(path, ": expected a weight_map of tensors and files"));
  std::set<std::string> names;
  for (const auto& entry : *map) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos)
      return fail(ErrorCode::kCorrupt, text(path, ": expected the name of a file in this folder, ",
                                            "found ", entry.dump()));
    names.insert(name);
  }
  return names;
}

}  // namespace

Result<WeightFiles> WeightFiles::open(const std::string& folder, const std::string& stem) {
  const std::string single = folder + "/" + stem + ".safetensors", index = single + ".index.json";
  std::error_code error;
  WeightFiles weights;
  weights.list_ = single;
  if (fs::exists(single, error)) {
    TRY(weights.add(single));
    return weights;
  }
  if (!fs::exists(index, error)) {
    return fail(ErrorCode::kNotFound,
                text("cannot read ", single, " or ", index, ": expected weights as safetensors"));
  }
  weights.list_ = index;
  ASSIGN_OR_RETURN(const std::set<std::string> names, listed_files(index));
  for (const std::string& name : names) TRY(weights.add(folder + "/" + name));
  return weights;
}

Result<void> WeightFiles::add(const std::string& path) {
  ASSIGN_OR_RETURN(storage::Safetensors file, storage::Safetensors::open(path));
  for (const storage::TensorInfo& info : file.header().tensors)
    of_.emplace(info.name, files_.size());
  files_.emplace_back(path, std::move(file));
  return {};
}

Result<storage::TensorView> WeightFiles::tensor(const std::string& name,
                                                const std::vector<std::int64_t>& shape) const {
  const auto found = of_.find(name);
  if (found == of_.end())
    return fail(ErrorCode::kCorrupt, text(list_, ": tensor ", name, " is missing"));
  const auto& [path, file] = files_[found->second];
  ASSIGN_OR_RETURN(storage::TensorView view, file.tensor(name));
  const bool floats =
      view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
  if (!floats || !std::ranges::equal(view.shape, shape, {}, {}, [](const std::int64_t n) {
        return static_cast<std::uint64_t>(n);
      })) {
    return fail(ErrorCode::kCorrupt,
                text(path, ": tensor ", name, ": expected floats ", shown(shape), ", found ",
                     storage::name_of(view.dtype), ' ', shown(view.shape)));
  }
  return view;
}

}  // namespace skerry::diffusion
