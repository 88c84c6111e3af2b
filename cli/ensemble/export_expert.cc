// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/export_expert.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/text.h"
#include "cli/shell/output.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

constexpr std::uint64_t kTimeFeatures = 256;
constexpr std::string_view kWeightsName = "diffusion_pytorch_model";
constexpr std::string_view kEmbedders = ".norm1.emb.";
using Shape = std::vector<std::uint64_t>;

std::uint64_t classes_of(const pb::ModelSpec& model) {
  return std::max<std::uint64_t>(1, model.classes());
}

class Listing {
 public:
  explicit Listing(const pb::ModelSpec& model) : model_(model), h_(model.width()) {}

  std::vector<ExportedTensor> all() {
    const std::uint64_t p = model_.patch_size();
    add_with_bias("pos_embed.proj", {h_, model_.channels(), p, p});
    for (std::uint32_t block = 0; block < model_.depth(); ++block) add_block(block);
    add_with_bias("proj_out_1", {2 * h_, h_});
    add_with_bias("proj_out_2", {p * p * model_.channels(), h_});
    return std::move(tensors_);
  }

 private:
  void add(const std::string& name, Shape shape) {
    tensors_.push_back({name, name, std::move(shape)});
  }
  void add_with_bias(const std::string& name, const Shape& shape) {
    add(name + ".weight", shape);
    add(name + ".bias", {shape.front()});
  }
  void add_block(std::uint32_t index) {
    const std::string block = text("transformer_blocks.", index);
    const std::size_t first = tensors_.size();
    const std::string embedders = text(block, kEmbedders);
    add_with_bias(embedders + "timestep_embedder.linear_1", {h_, kTimeFeatures});
    add_with_bias(embedders + "timestep_embedder.linear_2", {h_, h_});
    add(embedders + "class_embedder.embedding_table.weight", {classes_of(model_) + 1, h_});
    for (std::size_t i = first; i < tensors_.size(); ++i) {
      tensors_[i].from = text("transformer_blocks.0", tensors_[i].name.substr(block.size()));
    }
    add_with_bias(block + ".norm1.linear", {6 * h_, h_});
    for (const auto part : {"to_q", "to_k", "to_v", "to_out.0"})
      add_with_bias(text(block, ".attn1.", part), {h_, h_});
    add_with_bias(block + ".ff.net.0.proj", {4 * h_, h_});
    add_with_bias(block + ".ff.net.2", {h_, 4 * h_});
  }

  const pb::ModelSpec& model_;
  std::uint64_t h_;
  std::vector<ExportedTensor> tensors_;
};

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

std::vector<ExportedTensor> exported_tensors(const pb::ModelSpec& model) {
  return Listing(model).all();
}

std::string diffusers_config(const pb::ModelSpec& model) {
  const Json config = {
      {"_class_name", "DiTTransformer2DModel"},
      {"_diffusers_version", "0.32.0"},
      {"activation_fn", "gelu-approximate"},
      {"attention_bias", true},
      {"attention_head_dim", model.heads() == 0 ? 0 : model.width() / model.heads()},
      {"dropout", 0.0},
      {"in_channels", model.channels()},
      {"norm_elementwise_affine", false},
      {"norm_eps", 1e-6},
      {"norm_num_groups", 32},
      {"norm_type", "ada_norm_zero"},
      {"num_attention_heads", model.heads()},
      {"num_embeds_ada_norm", classes_of(model)},
      {"num_layers", model.depth()},
      {"out_channels", model.channels()},
      {"patch_size", model.patch_size()},
      {"sample_size", model.image_size()},
      {"upcast_attention", false}};
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
