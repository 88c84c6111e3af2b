// SPDX-License-Identifier: Apache-2.0
#include "cli/run/initial_weights.h"

#include <filesystem>
#include <set>

#include "base/text.h"
#include "cli/dataset/upload.h"
#include "cli/ensemble/export_expert.h"
#include "storage/layout.h"

namespace skerry::cli {
namespace {

const std::string kFile = "diffusion_pytorch_model.safetensors";

Result<storage::Safetensors> open_weights(const std::string& folder) {
  const std::string path = folder + "/" + kFile;
  std::error_code error;
  if (std::filesystem::exists(path + ".index.json", error)) {
    return fail(ErrorCode::kInvalid,
                text("model.init: the weights in ", folder,
                     " are spread over several files; `skerry-engine convert` joins them"));
  }
  if (!std::filesystem::exists(path, error)) {
    return fail(ErrorCode::kNotFound,
                text("model.init: ", folder, " holds no ", kFile,
                     ": expected expert_K/ of a folder that `skerry ensemble fetch` wrote, or of "
                     "`skerry-engine convert`"));
  }
  return storage::Safetensors::open(path);
}

}  // namespace

Result<void> check_initial_weights(const std::string& folder, const pb::ModelSpec& model) {
  ASSIGN_OR_RETURN(const storage::Safetensors file, open_weights(folder));
  const auto other_shape = [&](const std::string& what) {
    return fail(ErrorCode::kInvalid,
                text("model.init: the weights in ", folder, " are not of this model (width ",
                     model.width(), ", depth ", model.depth(), ", patch ", model.patch_size(), ", ",
                     model.channels(), " channels, ", model.classes(), " classes): ", what));
  };
  std::set<std::string> expected;
  for (const ExportedTensor& tensor : exported_tensors(model)) {
    expected.insert(tensor.name);
    const storage::TensorInfo* found = file.header().find(tensor.name);
    if (found == nullptr) return other_shape(text(tensor.name, " is missing"));
    if (found->dtype == storage::DType::kF32 && found->shape == tensor.shape) continue;
    return other_shape(text(tensor.name, " should be F32 ", shape_words(tensor.shape), ", found ",
                            storage::name_of(found->dtype), " ", shape_words(found->shape)));
  }
  for (const storage::TensorInfo& tensor : file.header().tensors) {
    if (!expected.contains(tensor.name))
      return other_shape(text(printable(tensor.name), " is no part of it"));
  }
  return {};
}

Result<std::string> upload_initial_weights(Command& command, const std::string& folder,
                                           const pb::ModelSpec& model) {
  TRY(check_initial_weights(folder, model));
  const std::string path = folder + "/" + kFile;
  ASSIGN_OR_RETURN(const storage::NamedManifest manifest,
                   storage::build_file_manifest(path, kFile));
  const std::string name = text("weights-", manifest.name.hex().substr(0, 16));
  const Result<pb::DatasetInfo> there = one_dataset(command, name);
  if (there.has_value() && there->state() == "ready") return name;
  if (!there.has_value() && there.error().code != ErrorCode::kNotFound) return there.error();
  DatasetIndex index{.folder = folder, .json = "{}", .partitions = 1};
  index.channels = model.channels();
  index.image_size = model.image_size();
  index.files.push_back({kFile, "weights", -1, 0, std::filesystem::file_size(path)});
  TRY(upload(command, name, index));
  return name;
}

}  // namespace skerry::cli
