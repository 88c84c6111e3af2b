// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/model.h"

#include <cmath>
#include <functional>
#include <numbers>

#include "base/check.h"
#include "base/text.h"
#include "diffusion/model/checkpointed.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBlockTensors = 14;
constexpr const char* kFirstWeight = "pos_embed.proj.weight";
// DiT draws its embedders with deviation 0.02 at width 1152. The time embedder
// keeps that gain at any width. Labels are drawn as PyTorch draws a table: from
// 0.02, a small model that trains for minutes hardly follows them. Both
// together, 1,000 steps of 32 on a quarter of Fashion-MNIST: .70 of the samples
// show the label asked for, against .42.
constexpr double kTimeDeviation = 0.02;
constexpr double kTimeDeviationWidth = 1152;
constexpr double kLabelDeviation = 1;
const std::string kEmbedder = "transformer_blocks.0.norm1.emb.";

// Width first, as in diffusers: the first half of the features encodes the
// column, the second the row.
at::Tensor sin_cos_positions(std::int64_t grid, std::int64_t width) {
  const auto doubles = at::TensorOptions().dtype(at::kDouble);
  const std::int64_t quarter = width / 4;
  const auto omega = at::pow(
      10000.0, -(at::arange(quarter, doubles) / static_cast<double>(quarter)));  // [width/4]
  const auto axis = at::outer(at::arange(grid, doubles), omega);                 // [grid, width/4]
  const auto encoded = at::cat({at::sin(axis), at::cos(axis)}, 1);               // [grid, width/2]
  const auto columns = encoded.unsqueeze(0).expand({grid, grid, width / 2});
  const auto rows = encoded.unsqueeze(1).expand({grid, grid, width / 2});
  return at::cat({columns, rows}, 2).reshape({1, grid * grid, width}).to(at::kFloat);
}

bool starts_at_zero(const std::string& name) {
  return name.ends_with(".bias") || name.find("norm1.linear") != std::string::npos ||
         name.starts_with("proj_out");
}

double xavier_bound(std::int64_t in, std::int64_t out) {
  return std::sqrt(6.0 / static_cast<double>(in + out));
}

void fill_initial(const std::string& name, std::span<float> values,
                  const std::vector<std::int64_t>& shape, Stream& stream) {
  if (name.starts_with(kEmbedder)) {
    const bool labels = name.find("class_embedder") != std::string::npos;
    const double gain = std::sqrt(kTimeDeviationWidth / static_cast<double>(shape[0]));
    const double deviation = labels ? kLabelDeviation : kTimeDeviation * gain;
    for (float& value : values) value = static_cast<float>(deviation * stream.normal());
    return;
  }
  // Xavier's uniform; a patch projection counts as the linear layer that it is.
  const auto in = static_cast<std::int64_t>(values.size()) / shape[0];
  const double bound = xavier_bound(in, shape[0]);
  for (float& value : values) value = static_cast<float>((2 * stream.uniform() - 1) * bound);
}

}  // namespace

std::vector<at::Tensor> initial_weights(const ModelSpec& model, std::uint64_t seed,
                                        std::uint32_t expert, std::uint32_t attempt) {
  std::vector<at::Tensor> weights;
  for (const ParameterShape& parameter : parameter_shapes(model)) {
    const auto index = static_cast<std::uint32_t>(weights.size());
    auto tensor = at::zeros(parameter.shape, at::kFloat);
    if (!starts_at_zero(parameter.name)) {
      Stream stream({.seed = seed,
                     .expert = expert,
                     .attempt = attempt,
                     .step = 0,
                     .sample = index,
                     .purpose = Purpose::kInit});
      fill_initial(parameter.name,
                   {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())},
                   parameter.shape, stream);
    }
    weights.push_back(std::move(tensor));
  }
  return weights;
}

std::vector<double> held_lengths(const ModelSpec& model) {
  std::vector<double> lengths;
  for (const ParameterShape& parameter : parameter_shapes(model)) {
    const bool held = parameter.name.ends_with(".weight") &&
                      (parameter.name.find(".attn1.") != std::string::npos ||
                       parameter.name.find(".ff.") != std::string::npos);
    // Of `in` numbers, uniform within the bound.
    lengths.push_back(held ? xavier_bound(parameter.shape[1], parameter.shape[0]) *
                                 std::sqrt(static_cast<double>(parameter.shape[1]) / 3)
                           : 0);
  }
  return lengths;
}

Result<std::vector<at::Tensor>> load_weights(const storage::Safetensors& file,
                                             const std::string& prefix, const ModelSpec& model) {
  return load_weights(std::vector{file}, prefix, model);
}

Result<std::vector<at::Tensor>> load_weights(const std::vector<storage::Safetensors>& files,
                                             const std::string& prefix, const ModelSpec& model) {
  std::vector<at::Tensor> weights;
  for (const ParameterShape& parameter : parameter_shapes(model)) {
    const std::string name = prefix + parameter.name;
    const auto holder =
        std::find_if(files.begin(), files.end() - 1, [&](const storage::Safetensors& file) {
          return file.header().find(name) != nullptr;
        });  // the last one, where none has it, says so
    ASSIGN_OR_RETURN(const storage::TensorView view, holder->tensor(name));
    const std::vector<std::int64_t> found(view.shape.begin(), view.shape.end());
    const bool halves = view.dtype == storage::DType::kBF16;
    if ((view.dtype != storage::DType::kF32 && !halves) || found != parameter.shape) {
      return fail(ErrorCode::kCorrupt,
                  text("tensor ", view.name, " does not have the type and shape of the model: ",
                       storage::name_of(view.dtype), " ", at::IntArrayRef(found),
                       " where F32 or BF16 ", at::IntArrayRef(parameter.shape), " is expected"));
    }
    const auto tensor = at::empty(parameter.shape, halves ? at::kBFloat16 : at::kFloat);
    std::memcpy(tensor.data_ptr(), view.data.data(), view.data.size());
    weights.push_back(tensor.to(at::kFloat));
  }
  return weights;
}

bool holds_weights(const storage::Safetensors& file) {
  return file.header().find(kFirstWeight) != nullptr;
}

Result<std::vector<at::Tensor>> exported_weights(const storage::Safetensors& file,
                                                 const ModelSpec& model) {
  const std::string beyond = text("transformer_blocks.", model.depth, ".norm1.linear.weight");
  if (file.header().find(beyond) != nullptr) {
    return fail(ErrorCode::kCorrupt,
                text("the weights have more blocks than the model's ", model.depth));
  }
  return load_weights(file, "", model);
}

Dit::Dit(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
         std::shared_ptr<const Kernels> kernels, bool checkpointing)
    : spec_(model),
      device_(device),
      kernels_(std::move(kernels)),
      checkpointing_(checkpointing),
      weights_(std::move(weights)) {
  const std::size_t after_blocks = 7 + kBlockTensors * model.depth;
  SKERRY_CHECK(weights_.size() == after_blocks + (model.router_experts > 0 ? 5 : 4),
               "weights of another shape");
  patches_ = {0};
  time_in_ = {2};
  time_out_ = {4};
  label_table_ = 6;
  for (std::size_t at = 7; at < after_blocks; at += kBlockTensors) {
    blocks_.push_back({{at}, {at + 2}, {at + 4}, {at + 6}, {at + 8}, {at + 10}, {at + 12}});
  }
  final_modulation_ = {after_blocks};
  final_ = {after_blocks + 2};
  class_token_ = after_blocks + 4;
  positions_ = sin_cos_positions(model.image_size / model.patch_size, model.width).to(device);
  const std::int64_t half = kTimeFeatures / 2;
  // Divided by half − 1, not by half: diffusers' form, which the exported model
  // computes.
  frequencies_ =
      at::exp(at::arange(half, at::kFloat) * (-std::log(10000.0)) / static_cast<double>(half - 1))
          .to(device);
}

at::Tensor Dit::linear(const at::Tensor& input, Linear layer) const {
  return kernels_->linear(input, weights_[layer.weight], weights_[layer.weight + 1]);
}

at::Tensor Dit::condition(const at::Tensor& t, const at::Tensor& labels) const {
  const auto angle = (t * 1000.0).unsqueeze(1) * frequencies_;                // [B,128]
  const auto features = at::cat({at::cos(angle), at::sin(angle)}, 1);         // [B,256]
  const auto time = linear(at::silu(linear(features, time_in_)), time_out_);  // [B,width]
  return time + at::embedding(weights_[label_table_], labels);
}

at::Tensor Dit::attention(const at::Tensor& input, const Block& block) const {
  Kernels::Projections projections;
  for (std::size_t i = 0; const Linear layer : {block.to_q, block.to_k, block.to_v}) {
    projections.weights[i] = weights_[layer.weight];
    projections.biases[i++] = weights_[layer.weight + 1];
  }
  return linear(kernels_->attention(input, projections, spec_.heads), block.to_out);
}

at::Tensor Dit::run_block(const at::Tensor& hidden, const at::Tensor& activated,
                          const Block& block) const {
  const auto parts =
      linear(activated, block.modulation).unsqueeze(1).chunk(6, 2);  // six of [B,1,width]
  const auto [kept, outer] = kernels_->keep_and_modulate(hidden, parts[0], parts[1]);
  const auto [sum, inner] =
      kernels_->add_gated_and_modulate(kept, attention(outer, block), parts[2], parts[3], parts[4]);
  const auto wide = kernels_->linear_gelu(inner, weights_[block.mlp_in.weight],
                                          weights_[block.mlp_in.weight + 1]);
  return kernels_->add_gated(sum, linear(wide, block.mlp_out), parts[5]);
}

at::Tensor Dit::run_checkpointed(const at::Tensor& hidden, const at::Tensor& activated,
                                 const Block& block) const {
  const auto part = [this, &block](const std::vector<at::Tensor>& in) {
    return run_block(in[0], in[1], block);
  };
  return checkpointed(part, {hidden, activated},
                      at::TensorList(weights_).slice(block.modulation.weight, kBlockTensors));
}

at::Tensor Dit::patchify(const at::Tensor& images) const {
  const std::int64_t patch = spec_.patch_size, grid = spec_.image_size / spec_.patch_size;
  return images.view({images.size(0), spec_.channels, grid, patch, grid, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({images.size(0), grid * grid, spec_.channels * patch * patch});
}

at::Tensor Dit::unpatchify(const at::Tensor& rows) const {
  const std::int64_t patch = spec_.patch_size, grid = spec_.image_size / spec_.patch_size;
  return rows.view({rows.size(0), grid, grid, patch, patch, spec_.channels})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({rows.size(0), spec_.channels, spec_.image_size, spec_.image_size});
}

at::Tensor Dit::embed(const at::Tensor& x_t) const {
  const auto projection = weights_[patches_.weight].view({spec_.width, -1});
  return kernels_->linear(patchify(x_t), projection, weights_[patches_.weight + 1]) +
         positions_;  // [B,T,width]
}

at::Tensor Dit::run_blocks(at::Tensor hidden, const at::Tensor& activated) const {
  const bool checkpointing = checkpointing_ && at::GradMode::is_enabled();
  for (const Block& block : blocks_) {
    hidden = checkpointing ? run_checkpointed(hidden, activated, block)
                           : run_block(hidden, activated, block);
  }
  return hidden;
}

at::Tensor Dit::head(const at::Tensor& hidden, const at::Tensor& activated) const {
  const auto parts = linear(activated, final_modulation_).unsqueeze(1).chunk(2, 2);  // shift, scale
  return linear(kernels_->modulate(hidden, parts[0], parts[1]), final_);
}

at::Tensor Dit::forward(const at::Tensor& x_t, const at::Tensor& t,
                        const at::Tensor& labels) const {
  SKERRY_CHECK(spec_.router_experts == 0, "a router has no velocity");
  const auto activated = at::silu(condition(t, labels));
  return unpatchify(head(run_blocks(embed(x_t), activated), activated));
}

// Blind to labels: they come in as shares of the partitions, in closed form.
at::Tensor Dit::logits(const at::Tensor& x_t, const at::Tensor& t) const {
  SKERRY_CHECK(spec_.router_experts > 0, "an expert has no logits");
  const std::int64_t batch = x_t.size(0), width = spec_.width;
  const auto labels =
      at::full({batch}, std::int64_t{spec_.null_label()}, t.options().dtype(at::kLong));
  const auto activated = at::silu(condition(t, labels));
  const auto token = weights_[class_token_].view({1, 1, width}).expand({batch, 1, width});
  const auto hidden = run_blocks(at::cat({token, embed(x_t)}, 1), activated);  // [B,1+T,width]
  return head(hidden.narrow(1, 0, 1).contiguous(), activated).squeeze(1).to(at::kFloat);
}

}  // namespace skerry::diffusion
