// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/dit_to_pixart.h"

#include <cmath>

#include "base/text.h"
#include "diffusion/model/weights.h"

namespace skerry::diffusion {
namespace {

const std::string kEmbedder = "adaln_single.emb.timestep_embedder.";
constexpr std::int64_t kTimes = 1000;  // a mean is over these

at::Tensor wide(const NamedWeights& weights, const std::string& name) {
  return weights.at(name).to(at::kDouble);
}

at::Tensor apply(const NamedWeights& weights, const std::string& layer, const at::Tensor& rows) {
  return at::linear(rows, wide(weights, layer + ".weight"), wide(weights, layer + ".bias"));
}

}  // namespace

at::Tensor hidden_steps(const NamedWeights& weights, const std::string& prefix,
                        const at::Tensor& steps, double slowest) {
  const at::Tensor frequencies =
      at::exp(at::arange(kTimeFeatures / 2, at::kDouble) * (-std::log(10000.0) / slowest));
  const at::Tensor angle = at::outer(steps, frequencies);
  return at::silu(apply(weights, prefix + "linear_1", at::cat({angle.cos(), angle.sin()}, 1)));
}

at::Tensor embed_steps(const NamedWeights& weights, const std::string& prefix,
                       const at::Tensor& steps, double slowest) {
  return apply(weights, prefix + "linear_2", hidden_steps(weights, prefix, steps, slowest));
}

at::Tensor null_label(const NamedWeights& dit) {
  return wide(dit, kDitEmbedder + "class_embedder.embedding_table.weight").select(0, -1);
}

NamedWeights dit_to_pixart(const NamedWeights& dit, const ModelSpec& model) {
  NamedWeights pixart;
  const std::vector<ParameterShape> shapes = parameter_shapes(model);
  const std::vector<at::Tensor> drawn = initial_weights(model, 0, 0, 0);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto kept = dit.find(shapes[i].name);
    pixart.emplace(shapes[i].name, kept == dit.end() ? drawn[i] : kept->second);
  }
  const at::Tensor steps = at::arange(kTimes, at::kDouble) * (1000.0 / kTimes);
  const at::Tensor time = embed_steps(pixart, kEmbedder, steps, kPixartSlowest);  // [n,W]
  const at::Tensor activated = at::silu(time);
  const auto block = [](std::uint32_t i) { return text("transformer_blocks.", i, "."); };
  for (const char* part : {".weight", ".bias"}) {
    std::vector<at::Tensor> each;
    for (std::uint32_t i = 0; i < model.depth; ++i)
      each.push_back(wide(dit, block(i) + "norm1.linear" + part));
    pixart[text("adaln_single.linear", part)] = at::stack(each).mean(0).to(at::kFloat);
    pixart[text("proj_out", part)] = dit.at(text("proj_out_2", part));
  }
  const at::Tensor shared = apply(pixart, "adaln_single.linear", activated).mean(0);  // [6W]
  for (std::uint32_t i = 0; i < model.depth; ++i) {
    const at::Tensor own = apply(dit, block(i) + "norm1.linear", activated).mean(0);
    pixart[block(i) + "scale_shift_table"] =
        (own - shared).view({6, model.width}).to(at::kFloat).contiguous();
  }
  // The last table has the time itself added to it, of which the mean goes.
  const at::Tensor last = apply(dit, "proj_out_1", activated).mean(0).view({2, model.width});
  pixart["scale_shift_table"] = (last - time.mean(0)).to(at::kFloat).contiguous();
  return pixart;
}

}  // namespace skerry::diffusion
