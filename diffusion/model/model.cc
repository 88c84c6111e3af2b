// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/model.h"

#include <cmath>

#include "base/check.h"
#include "diffusion/model/dit.h"
#include "diffusion/model/pixart.h"

namespace skerry::diffusion {

at::Tensor sin_cos_positions(const at::Tensor& rows, const at::Tensor& columns,
                             std::int64_t width) {
  const auto doubles = at::TensorOptions().dtype(at::kDouble);
  const std::int64_t quarter = width / 4;
  const auto omega = at::pow(
      10000.0, -(at::arange(quarter, doubles) / static_cast<double>(quarter)));  // [width/4]
  const auto encoded = [&](const at::Tensor& places) {
    const auto axis = at::outer(places, omega);         // [n, width/4]
    return at::cat({at::sin(axis), at::cos(axis)}, 1);  // [n, width/2]
  };
  const std::vector<std::int64_t> grid{rows.size(0), columns.size(0), width / 2};
  return at::cat(
             {encoded(columns).unsqueeze(0).expand(grid), encoded(rows).unsqueeze(1).expand(grid)},
             2)
      .reshape({1, grid[0] * grid[1], width})
      .to(at::kFloat);
}

Denoiser::Places::Places(const ModelSpec& model) {
  for (const ParameterShape& parameter : parameter_shapes(model))
    places_.emplace(parameter.name, places_.size());
}

std::size_t Denoiser::Places::at(const std::string& name) const {
  const auto found = places_.find(name);
  SKERRY_CHECK(found != places_.end(), "no weight ", name);
  return found->second;
}

Denoiser::Attention Denoiser::Places::attention(const std::string& prefix) const {
  return {linear(prefix + ".to_q"), linear(prefix + ".to_k"), linear(prefix + ".to_v"),
          linear(prefix + ".to_out.0")};
}

Denoiser::Mlp Denoiser::Places::mlp(const std::string& block) const {
  return {linear(block + ".ff.net.0.proj"), linear(block + ".ff.net.2")};
}

Denoiser::Denoiser(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
                   std::shared_ptr<const Kernels> kernels, bool checkpointing,
                   const std::string& time_embedder, double slowest)
    : spec_(model),
      device_(device),
      kernels_(std::move(kernels)),
      checkpointing_(checkpointing),
      weights_(std::move(weights)) {
  SKERRY_CHECK(weights_.size() == parameter_shapes(model).size(), "weights of another shape");
  const Places places(model);
  patches_ = places.linear("pos_embed.proj");
  time_in_ = places.linear(time_embedder + ".linear_1");
  time_out_ = places.linear(time_embedder + ".linear_2");
  frequencies_ = at::exp(at::arange(kTimeFeatures / 2, at::kFloat) * (-std::log(10000.0)) / slowest)
                     .to(device);
}

at::Tensor Denoiser::linear(const at::Tensor& input, Linear layer) const {
  return kernels_->linear(input, weights_[layer.weight], weights_[layer.weight + 1]);
}

Kernels::Projections Denoiser::projections(const Attention& layers) const {
  Kernels::Projections found;
  for (std::size_t i = 0; const Linear layer : {layers.to_q, layers.to_k, layers.to_v}) {
    found.weights[i] = weights_[layer.weight];
    found.biases[i++] = weights_[layer.weight + 1];
  }
  return found;
}

at::Tensor Denoiser::attend(const at::Tensor& input, const Attention& layers) const {
  return linear(kernels_->attention(input, projections(layers), spec_.heads), layers.to_out);
}

at::Tensor Denoiser::attend(const at::Tensor& input, const at::Tensor& context,
                            const Attention& layers, const at::Tensor& bias) const {
  return linear(kernels_->cross_attention(input, context, projections(layers), spec_.heads, bias),
                layers.to_out);
}

at::Tensor Denoiser::mlp(const at::Tensor& input, const Mlp& layers) const {
  return linear(
      kernels_->linear_gelu(input, weights_[layers.in.weight], weights_[layers.in.weight + 1]),
      layers.out);
}

at::Tensor Denoiser::embed_time(const at::Tensor& t) const {
  const auto angle = (t * 1000.0).unsqueeze(1) * frequencies_;         // [B,128]
  const auto features = at::cat({at::cos(angle), at::sin(angle)}, 1);  // [B,256]
  return linear(at::silu(linear(features, time_in_)), time_out_);      // [B,width]
}

at::Tensor Denoiser::embed_patches(const at::Tensor& images) const {
  const std::int64_t patch = spec_.patch_size, rows = images.size(2) / patch,
                     columns = images.size(3) / patch;
  const auto patches =
      images.view({images.size(0), spec_.channels, rows, patch, columns, patch})
          .permute({0, 2, 4, 1, 3, 5})
          .reshape({images.size(0), rows * columns, spec_.channels * patch * patch});
  const auto projection = weights_[patches_.weight].view({spec_.width, -1});
  return kernels_->linear(patches, projection, weights_[patches_.weight + 1]);
}

at::Tensor Denoiser::unpatchify(const at::Tensor& rows, const at::Tensor& like) const {
  const std::int64_t patch = spec_.patch_size, height = like.size(2), width = like.size(3);
  return rows.view({rows.size(0), height / patch, width / patch, patch, patch, spec_.channels})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({rows.size(0), spec_.channels, height, width});
}

at::Tensor Denoiser::run(const Part& part, const std::vector<at::Tensor>& operands,
                         std::size_t first, std::size_t count) const {
  if (!checkpointing_ || !at::GradMode::is_enabled()) return part(operands);
  return checkpointed(part, operands, at::TensorList(weights_).slice(first, count));
}

std::unique_ptr<Denoiser> make_denoiser(const ModelSpec& model, std::vector<at::Tensor> weights,
                                        torch::Device device,
                                        std::shared_ptr<const Kernels> kernels,
                                        bool checkpointing) {
  if (model.is_pixart()) {
    return std::make_unique<Pixart>(model, std::move(weights), device, std::move(kernels),
                                    checkpointing);
  }
  return std::make_unique<Dit>(model, std::move(weights), device, std::move(kernels),
                               checkpointing);
}

}  // namespace skerry::diffusion
