// SPDX-License-Identifier: Apache-2.0
#include "model/shapes.h"

#include <functional>

#include "base/text.h"

namespace skerry {
namespace {

const std::string kEmbedder = "transformer_blocks.0.norm1.emb.";

using Visit = std::function<void(const std::string& name, std::vector<std::int64_t> shape)>;

void visit_linear(const Visit& visit, const std::string& name, std::int64_t out, std::int64_t in) {
  visit(name + ".weight", {out, in});
  visit(name + ".bias", {out});
}

void visit_attention(const Visit& visit, const std::string& prefix, std::int64_t width) {
  for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"}) {
    visit_linear(visit, prefix + part, width, width);
  }
}

void visit_mlp(const Visit& visit, const std::string& prefix, std::int64_t width) {
  visit_linear(visit, prefix + "ff.net.0.proj", 4 * width, width);
  visit_linear(visit, prefix + "ff.net.2", width, 4 * width);
}

void visit_patches(const Visit& visit, const ModelSpec& model) {
  const std::int64_t width = model.width, channels = model.channels, patch = model.patch_size;
  visit("pos_embed.proj.weight", {width, channels, patch, patch});
  visit("pos_embed.proj.bias", {width});
}

void visit_dit(const Visit& visit, const ModelSpec& model) {
  const std::int64_t width = model.width, channels = model.channels, patch = model.patch_size;
  visit_patches(visit, model);
  visit_linear(visit, kEmbedder + "timestep_embedder.linear_1", width, kTimeFeatures);
  visit_linear(visit, kEmbedder + "timestep_embedder.linear_2", width, width);
  visit(kEmbedder + "class_embedder.embedding_table.weight",
        {std::int64_t{model.table_classes()} + 1, width});
  for (std::uint32_t i = 0; i < model.depth; ++i) {
    const std::string block = text("transformer_blocks.", i, ".");
    visit_linear(visit, block + "norm1.linear", 6 * width, width);
    visit_attention(visit, block + "attn1.", width);
    visit_mlp(visit, block, width);
  }
  visit_linear(visit, "proj_out_1", 2 * width, width);
  const bool is_router = model.router_experts > 0;
  visit_linear(visit, "proj_out_2", is_router ? model.router_experts : patch * patch * channels,
               width);
  if (is_router) visit("class_token", {width, 1});
}

void visit_pixart(const Visit& visit, const ModelSpec& model) {
  const std::int64_t width = model.width, channels = model.channels, patch = model.patch_size;
  visit_patches(visit, model);
  const std::string embedder = "adaln_single.emb.timestep_embedder.";
  visit_linear(visit, embedder + "linear_1", width, kTimeFeatures);
  visit_linear(visit, embedder + "linear_2", width, width);
  visit_linear(visit, "adaln_single.linear", 6 * width, width);
  visit_linear(visit, "caption_projection.linear_1", width, model.caption_dim);
  visit_linear(visit, "caption_projection.linear_2", width, width);
  for (std::uint32_t i = 0; i < model.depth; ++i) {
    const std::string block = text("transformer_blocks.", i, ".");
    visit(block + "scale_shift_table", {6, width});
    visit_attention(visit, block + "attn1.", width);
    visit_attention(visit, block + "attn2.", width);
    visit_mlp(visit, block, width);
  }
  visit("scale_shift_table", {2, width});
  visit_linear(visit, "proj_out", patch * patch * channels, width);
}

}  // namespace

std::vector<ParameterShape> parameter_shapes(const ModelSpec& model) {
  std::vector<ParameterShape> shapes;
  const Visit visit = [&](const std::string& name, std::vector<std::int64_t> shape) {
    shapes.push_back({name, std::move(shape)});
  };
  model.is_pixart() ? visit_pixart(visit, model) : visit_dit(visit, model);
  return shapes;
}

}  // namespace skerry
