// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/dit.h"

#include "base/check.h"
#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBlockTensors = 14;
const std::string kEmbedder = "transformer_blocks.0.norm1.emb.";
// Half of the features less one: diffusers' form, which the exported model
// computes.
constexpr double kSlowest = kTimeFeatures / 2 - 1;

}  // namespace

Dit::Dit(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
         std::shared_ptr<const Kernels> kernels, bool checkpointing)
    : Denoiser(model, std::move(weights), device, std::move(kernels), checkpointing,
               kEmbedder + "timestep_embedder", kSlowest) {
  const Places places(model);
  label_table_ = places.at(kEmbedder + "class_embedder.embedding_table.weight");
  for (std::uint32_t i = 0; i < model.depth; ++i) {
    const std::string block = text("transformer_blocks.", i);
    blocks_.push_back({places.linear(block + ".norm1.linear"), places.attention(block + ".attn1"),
                       places.mlp(block)});
  }
  final_modulation_ = places.linear("proj_out_1");
  final_ = places.linear("proj_out_2");
  if (model.router_experts > 0) class_token_ = places.at("class_token");
  const auto axis = at::arange(std::int64_t{model.image_size / model.patch_size}, at::kDouble);
  positions_ = sin_cos_positions(axis, axis, model.width).to(device);
}

at::Tensor Dit::activated(const at::Tensor& t, const at::Tensor& labels) const {
  return at::silu(embed_time(t) + at::embedding(weight(label_table_), labels));
}

at::Tensor Dit::run_block(const at::Tensor& hidden, const at::Tensor& activated,
                          const Block& block) const {
  const auto parts =
      linear(activated, block.modulation).unsqueeze(1).chunk(6, 2);  // six of [B,1,width]
  const auto [kept, outer] = kernels().keep_and_modulate(hidden, parts[0], parts[1]);
  const auto [sum, inner] = kernels().add_gated_and_modulate(kept, attend(outer, block.attention),
                                                             parts[2], parts[3], parts[4]);
  return kernels().add_gated(sum, mlp(inner, block.mlp), parts[5]);
}

at::Tensor Dit::run_blocks(at::Tensor hidden, const at::Tensor& activated) const {
  for (const Block& block : blocks_) {
    const auto part = [this, &block](const std::vector<at::Tensor>& in) {
      return run_block(in[0], in[1], block);
    };
    hidden = run(part, {hidden, activated}, block.modulation.weight, kBlockTensors);
  }
  return hidden;
}

at::Tensor Dit::head(const at::Tensor& hidden, const at::Tensor& activated) const {
  const auto parts = linear(activated, final_modulation_).unsqueeze(1).chunk(2, 2);  // shift, scale
  return linear(kernels().modulate(hidden, parts[0], parts[1]), final_);
}

at::Tensor Dit::forward(const at::Tensor& x_t, const at::Tensor& t,
                        const Condition& condition) const {
  SKERRY_CHECK(spec().router_experts == 0, "a router has no velocity");
  const auto by = activated(t, condition.labels);
  return unpatchify(head(run_blocks(embed_patches(x_t) + positions_, by), by), x_t);
}

// Blind to labels: they come in as shares of the partitions, in closed form.
at::Tensor Dit::logits(const at::Tensor& x_t, const at::Tensor& t) const {
  SKERRY_CHECK(spec().router_experts > 0, "an expert has no logits");
  const std::int64_t batch = x_t.size(0), width = spec().width;
  const auto by = activated(
      t, at::full({batch}, std::int64_t{spec().null_label()}, t.options().dtype(at::kLong)));
  const auto token = weight(class_token_).view({1, 1, width}).expand({batch, 1, width});
  const auto hidden =
      run_blocks(at::cat({token, embed_patches(x_t) + positions_}, 1), by);  // [B,1+T,width]
  return head(hidden.narrow(1, 0, 1).contiguous(), by).squeeze(1).to(at::kFloat);
}

}  // namespace skerry::diffusion
