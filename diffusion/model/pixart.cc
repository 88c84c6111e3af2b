// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/pixart.h"

#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBlockTensors = 21;
constexpr double kSlowest = kTimeFeatures / 2;  // a DiT's embedder: one less
constexpr double kHidden = -10000;              // what a hidden token's score gets, as in diffusers

// Stretched to cover as much as the grid of image_size does. As diffusers: the
// places in fp32, the angles in fp64.
at::Tensor axis(std::int64_t count, const ModelSpec& model) {
  const double base = model.image_size / model.patch_size;
  return (at::arange(count, at::kFloat) / (static_cast<double>(count) / base) /
          model.interpolation_scale)
      .to(at::kDouble);
}

}  // namespace

Pixart::Pixart(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
               std::shared_ptr<const Kernels> kernels, bool checkpointing)
    : Denoiser(model, std::move(weights), device, std::move(kernels), checkpointing,
               "adaln_single.emb.timestep_embedder", kSlowest) {
  const Places places(model);
  modulation_ = places.linear("adaln_single.linear");
  caption_ = {places.linear("caption_projection.linear_1"),
              places.linear("caption_projection.linear_2")};
  for (std::uint32_t i = 0; i < model.depth; ++i) {
    const std::string block = text("transformer_blocks.", i);
    blocks_.push_back({places.at(block + ".scale_shift_table"), places.attention(block + ".attn1"),
                       places.attention(block + ".attn2"), places.mlp(block)});
  }
  table_ = places.at("scale_shift_table");
  final_ = places.linear("proj_out");
}

const at::Tensor& Pixart::positions(const at::Tensor& images) const {
  const std::int64_t patch = spec().patch_size, rows = images.size(2) / patch,
                     columns = images.size(3) / patch;
  if (rows != rows_ || columns != columns_) {
    positions_ =
        sin_cos_positions(axis(rows, spec()), axis(columns, spec()), spec().width).to(device());
    rows_ = rows;
    columns_ = columns;
  }
  return positions_;
}

Pixart::Context Pixart::context(const at::Tensor& time, const Condition& condition) const {
  return {.six = linear(at::silu(time), modulation_).view({time.size(0), 6, -1}),
          .text = mlp(condition.captions.to(at::kFloat), caption_),
          .bias = ((1 - condition.mask) * kHidden).unsqueeze(1)};
}

// Key and value add their gradients of the text within the block, as a
// checkpointed block does, before those of other blocks come in.
//
// A sum of the table [n,W] and a product's result has the result's type, so
// that the products after it get theirs.
at::Tensor Pixart::run_block(const at::Tensor& hidden, const Context& context,
                             const Block& block) const {
  const auto parts = (weight(block.table) + context.six)
                         .to(context.six.scalar_type())
                         .chunk(6, 1);  // six of [B,1,width]
  const auto [kept, outer] = kernels().keep_and_modulate(hidden, parts[0], parts[1]);
  const auto seen = kernels().add_gated(kept, attend(outer, block.attention), parts[2]);
  const auto text = context.text.view(context.text.sizes());
  const auto told = seen + attend(seen, text, block.cross_attention, context.bias);
  const auto [sum, inner] = kernels().keep_and_modulate(told, parts[3], parts[4]);
  return kernels().add_gated(sum, mlp(inner, block.mlp), parts[5]);
}

at::Tensor Pixart::head(const at::Tensor& hidden, const at::Tensor& time) const {
  const auto parts = (weight(table_) + time.unsqueeze(1))
                         .to(time.scalar_type())
                         .chunk(2, 1);  // shift, scale: each [B,1,width]
  return linear(kernels().modulate(hidden, parts[0], parts[1]), final_);
}

at::Tensor Pixart::forward(const at::Tensor& x_t, const at::Tensor& t,
                           const Condition& condition) const {
  const auto time = embed_time(t);
  const Context all = context(time, condition);
  auto hidden = embed_patches(x_t) + positions(x_t);  // [B,T,width]
  for (const Block& block : blocks_) {
    const auto part = [this, &block, bias = all.bias](const std::vector<at::Tensor>& in) {
      return run_block(in[0], {in[1], in[2], bias}, block);
    };
    hidden = run(part, {hidden, all.six, all.text}, block.table, kBlockTensors);
  }
  return unpatchify(head(hidden, time), x_t);
}

}  // namespace skerry::diffusion
