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

void visit_block(const Visit& visit, const std::string& prefix, std::int64_t width) {
  visit_linear(visit, prefix + "norm1.linear", 6 * width, width);
  for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"}) {
    visit_linear(visit, prefix + "attn1." + part, width, width);
  }
  visit_linear(visit, prefix + "ff.net.0.proj", 4 * width, width);
  visit_linear(visit, prefix + "ff.net.2", width, 4 * width);
}

}  // namespace

std::vector<ParameterShape> parameter_shapes(const ModelSpec& model) {
  std::vector<ParameterShape> shapes;
  const Visit visit = [&](const std::string& name, std::vector<std::int64_t> shape) {
    shapes.push_back({name, std::move(shape)});
  };
  const std::int64_t width = model.width, channels = model.channels, patch = model.patch_size;
  visit("pos_embed.proj.weight", {width, channels, patch, patch});
  visit("pos_embed.proj.bias", {width});
  visit_linear(visit, kEmbedder + "timestep_embedder.linear_1", width, kTimeFeatures);
  visit_linear(visit, kEmbedder + "timestep_embedder.linear_2", width, width);
  visit(kEmbedder + "class_embedder.embedding_table.weight",
        {std::int64_t{model.table_classes()} + 1, width});
  for (std::uint32_t i = 0; i < model.depth; ++i)
    visit_block(visit, text("transformer_blocks.", i, "."), width);
  visit_linear(visit, "proj_out_1", 2 * width, width);
  const bool is_router = model.router_experts > 0;
  visit_linear(visit, "proj_out_2", is_router ? model.router_experts : patch * patch * channels,
               width);
  if (is_router) visit("class_token", {width, 1});
  return shapes;
}

}  // namespace skerry
