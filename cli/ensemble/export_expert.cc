// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/export_expert.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/text.h"
#include "cli/shell/output.h"
#include "model/shapes.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

constexpr std::string_view kWeightsName = "diffusion_pytorch_model";
constexpr std::string_view kFirstBlock = "transformer_blocks.0";
using Shape = std::vector<std::uint64_t>;

std::uint64_t classes_of(const pb::ModelSpec& model) {
  return std::max<std::uint64_t>(1, model.classes());
}

// What the weights depend on.
ModelSpec plain(const pb::ModelSpec& model) {
  return {.channels = model.channels(),
          .patch_size = model.patch_size(),
          .width = model.width(),
          .depth = model.depth(),
          .heads = model.heads(),
          .classes = model.classes(),
          .caption_dim = model.caption_dim()};
}

Result<void> check_source(const std::vector<ExportedTensor>& wanted, const WeightSource& weights) {
  std::map<std::string_view, const storage::TensorView*> there;
  for (const storage::TensorView& tensor : weights.tensors) there.emplace(tensor.name, &tensor);
  std::set<std::string_view> used;
  for (const ExportedTensor& tensor : wanted) {
    const auto found = there.find(tensor.from);
    if (found == there.end()) {
      return fail(ErrorCode::kCorrupt, text("the checkpoint has no weights ", tensor.from));
    }
    if (found->second->dtype != storage::DType::kF32 || found->second->shape != tensor.shape) {
      return fail(ErrorCode::kCorrupt, text("the checkpoint's ", tensor.from, " should be F32 ",
                                            shape_words(tensor.shape), ", found ",
                                            storage::name_of(found->second->dtype), " ",
                                            shape_words(found->second->shape)));
    }
    used.insert(found->first);
  }
  for (const auto& [name, tensor] : there) {
    if (!used.contains(name)) {
      return fail(ErrorCode::kCorrupt,
                  text("the checkpoint's ", printable(name), " is no part of this model"));
    }
  }
  return {};
}

std::uint64_t bytes_of_shape(const Shape& shape) {
  std::uint64_t bytes = sizeof(float);
  for (const std::uint64_t size : shape) bytes *= size;
  return bytes;
}

using Shard = std::span<const ExportedTensor>;

// In their order, as many in each as fit.
std::vector<Shard> split(const std::vector<ExportedTensor>& tensors, std::uint64_t shard_bytes) {
  std::vector<Shard> shards;
  std::uint64_t bytes = 0;
  for (std::size_t begin = 0, i = 0; i < tensors.size(); ++i) {
    const std::uint64_t size = bytes_of_shape(tensors[i].shape);
    if (i > begin && bytes + size > shard_bytes) {
      shards.push_back(Shard(tensors).subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += size;
    if (i + 1 == tensors.size()) shards.push_back(Shard(tensors).subspan(begin));
  }
  return shards;
}

std::string five_digits(std::size_t number) {
  std::string digits = text(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

std::string dotted(const std::string& variant) { return variant.empty() ? "" : "." + variant; }

std::string shard_name(const ExportForm& form, std::size_t index, std::size_t count) {
  const std::string part =
      count == 1 ? "" : text("-", five_digits(index + 1), "-of-", five_digits(count));
  return text(kWeightsName, dotted(form.variant), part, ".safetensors");
}

Result<void> write_shard(const std::string& path, const Shard& tensors,
                         const WeightSource& weights) {
  std::vector<storage::TensorView> views;
  for (const ExportedTensor& tensor : tensors)
    views.push_back({tensor.name, storage::DType::kF32, tensor.shape, {}});
  ASSIGN_OR_RETURN(const std::string header,
                   storage::safetensors_header(views, {{"format", "pt"}}));
  ASSIGN_OR_RETURN(storage::PartialFile file, storage::PartialFile::create(path));
  TRY(file.append(header));
  for (const ExportedTensor& tensor : tensors) {
    std::uint64_t written = 0;
    TRY(weights.read(tensor.from, [&](std::string_view bytes) {
      written += bytes.size();
      return file.append(bytes);
    }));
    if (written != bytes_of_shape(tensor.shape)) {
      return fail(ErrorCode::kCorrupt,
                  text("the checkpoint's ", tensor.from, " should have ",
                       bytes_of_shape(tensor.shape), " bytes, found ", written));
    }
  }
  return file.commit();
}

Result<void> write_shard_index(const std::string& folder, const std::vector<Shard>& shards,
                               const ExportForm& form) {
  Json map = Json::object();
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const ExportedTensor& tensor : shards[i]) {
      map[tensor.name] = shard_name(form, i, shards.size());
      bytes += bytes_of_shape(tensor.shape);
    }
  }
  const Json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}};
  // Only here the variant follows the index: that is how diffusers names it.
  return write_text_file(
      text(folder, "/", kWeightsName, ".safetensors.index", dotted(form.variant), ".json"),
      index.dump(2) + "\n");
}

}  // namespace

std::string shape_words(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += text(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

// Diffusers repeats a DiT's embedders in every block.
std::vector<ExportedTensor> exported_tensors(const pb::ModelSpec& model) {
  std::vector<ExportedTensor> tensors, embedders;
  for (const ParameterShape& parameter : parameter_shapes(plain(model))) {
    const std::string& name = parameter.name;
    const bool embeds = name.starts_with(text(kFirstBlock, ".norm1.emb."));
    const ExportedTensor tensor{name, name, {parameter.shape.begin(), parameter.shape.end()}};
    if (name.ends_with(".norm1.linear.weight")) {
      const std::string block = name.substr(0, name.find(".norm1."));
      for (ExportedTensor copy : embedders) {
        copy.name = text(block, copy.from.substr(kFirstBlock.size()));
        tensors.push_back(std::move(copy));
      }
    }
    (embeds ? embedders : tensors).push_back(tensor);
  }
  return tensors;
}

std::string class_of_expert(const pb::ModelSpec& model) {
  return model.caption_dim() > 0 ? "PixArtTransformer2DModel" : "DiTTransformer2DModel";
}

std::string diffusers_config(const pb::ModelSpec& model) {
  const bool pixart = model.caption_dim() > 0;
  Json config = {{"_class_name", class_of_expert(model)},
                 {"_diffusers_version", "0.32.0"},
                 {"activation_fn", "gelu-approximate"},
                 {"attention_bias", true},
                 {"attention_head_dim", model.heads() == 0 ? 0 : model.width() / model.heads()},
                 {"dropout", 0.0},
                 {"in_channels", model.channels()},
                 {"norm_elementwise_affine", false},
                 {"norm_eps", 1e-6},
                 {"norm_num_groups", 32},
                 {"norm_type", pixart ? "ada_norm_single" : "ada_norm_zero"},
                 {"num_attention_heads", model.heads()},
                 {"num_embeds_ada_norm", pixart ? 1000 : classes_of(model)},
                 {"num_layers", model.depth()},
                 {"out_channels", model.channels()},
                 {"patch_size", model.patch_size()},
                 {"sample_size", model.image_size()},
                 {"upcast_attention", false}};
  if (pixart) {
    config["attention_type"] = "default";
    config["caption_channels"] = model.caption_dim();
    config["cross_attention_dim"] = model.width();
    const double scale = model.interpolation_scale();
    config["interpolation_scale"] = scale == 0 ? 1.0 : scale;
    // Without it diffusers takes them where sample_size is 128.
    config["use_additional_conditions"] = false;
  }
  return config.dump(2) + "\n";
}

Result<void> write_text_file(const std::string& path, std::string_view bytes) {
  ASSIGN_OR_RETURN(storage::PartialFile file, storage::PartialFile::create(path));
  TRY(file.append(bytes));
  return file.commit();
}

Result<void> export_expert(const std::string& folder, const pb::ModelSpec& model,
                           const WeightSource& weights, const ExportForm& form) {
  const std::vector<ExportedTensor> tensors = exported_tensors(model);
  TRY(check_source(tensors, weights));
  const std::vector<Shard> shards = split(tensors, form.shard_bytes);
  for (std::size_t i = 0; i < shards.size(); ++i)
    TRY(write_shard(text(folder, "/", shard_name(form, i, shards.size())), shards[i], weights));
  if (shards.size() > 1) TRY(write_shard_index(folder, shards, form));
  return write_text_file(folder + "/config.json", diffusers_config(model));
}

}  // namespace skerry::cli
