// SPDX-License-Identifier: Apache-2.0
// Against diffusers' own model: tests/oracle/pixart_oracle.py.
#include "diffusion/model/pixart.h"

#include <set>

#include "diffusion/testing/near_reference.h"
#include "diffusion/testing/testing.h"

namespace skerry::diffusion {
namespace {

using namespace testing;
const torch::Device kCpu(torch::kCPU);

std::vector<at::Tensor> random_weights(const ModelSpec& spec) {
  at::manual_seed(3);
  std::vector<at::Tensor> weights;
  for (const auto& parameter : parameter_shapes(spec))
    weights.push_back((at::randn(parameter.shape) * 0.2).set_requires_grad(true));
  return weights;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Pixart, ParametersBearTheNamesOfTheExport) {
  const ModelSpec spec = tiny_pixart();
  std::set<std::string> names;
  for (const auto& parameter : parameter_shapes(spec)) names.insert(parameter.name);
  EXPECT_EQ(names.size(), 21U * spec.depth + 15);
  for (const char* name :
       {"adaln_single.emb.timestep_embedder.linear_2.bias", "adaln_single.linear.weight",
        "caption_projection.linear_1.weight", "transformer_blocks.1.scale_shift_table",
        "transformer_blocks.0.attn2.to_out.0.bias", "scale_shift_table", "proj_out.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(Pixart, StartsAsZeroAndItsCaptionsChangeNoBlock) {
  const ModelSpec spec = tiny_pixart();
  auto weights = initial_weights(spec, 1, 0, 0);
  const auto x = at::randn({4, 1, 8, 8}), t = at::rand({4});
  const Condition one = some_condition(spec, 4), other = some_condition(spec, 4);
  EXPECT_EQ(Pixart(spec, weights, kCpu).forward(x, t, one).abs().max().item<float>(), 0);
  at::randn_out(weights[weights.size() - 2], weights[weights.size() - 2].sizes());  // proj_out
  const Pixart model(spec, weights, kCpu);
  EXPECT_GT(model.forward(x, t, one).abs().max().item<float>(), 0.1);
  EXPECT_EQ(distance(model.forward(x, t, one), model.forward(x, t, other)), 0);
}

TEST(Pixart, EveryParameterMatters) {
  const ModelSpec spec = tiny_pixart();
  const Pixart model(spec, random_weights(spec), kCpu);
  const auto out = model.forward(at::randn({4, 1, 8, 8}), at::rand({4}), some_condition(spec, 4));
  const auto gradients = torch::autograd::grad({out.square().sum()}, model.weights());
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (shapes[i].name.ends_with("to_k.bias")) continue;  // softmax does not see it
    EXPECT_GT(gradients[i].abs().max().item<float>(), 0) << shapes[i].name;
  }
}

TEST(Pixart, HiddenTokensAndPaddingChangeNothing) {
  const ModelSpec spec = tiny_pixart();
  const Pixart model(spec, random_weights(spec), kCpu);
  const auto x = at::randn({4, 1, 8, 8}), t = at::rand({4});
  const Condition padded = some_condition(spec, 4);
  const auto all = model.forward(x, t, padded);
  const auto kept = padded.mask.unsqueeze(2);
  EXPECT_LT(distance(all, model.forward(x, t,
                                        {.captions = padded.captions * kept + 7 * (1 - kept),
                                         .mask = padded.mask})),
            1e-5);
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto length = padded.mask[i].sum().item<std::int64_t>();
    const auto row = [&](const at::Tensor& of) { return of.narrow(0, i, 1); };
    const auto alone = model.forward(row(x), row(t),
                                     {.captions = row(padded.captions).narrow(1, 0, length),
                                      .mask = row(padded.mask).narrow(1, 0, length)});
    EXPECT_LT(distance(row(all), alone), 1e-5);
  }
  EXPECT_GT(
      distance(all, model.forward(
                        x, t, {.captions = padded.captions, .mask = at::ones_like(padded.mask)})),
      0.01);
}

TEST(Pixart, CheckpointingChangesNoBit) {
  const ModelSpec spec = tiny_pixart();
  const auto weights = random_weights(spec);
  const auto x = at::randn({4, 1, 12, 4}), t = at::rand({4});
  const Condition condition = some_condition(spec, 4);
  const auto gradients = [&](bool checkpointing) {
    const Pixart model(spec, weights, kCpu, reference_kernels(), checkpointing);
    return torch::autograd::grad({model.forward(x, t, condition).square().sum()}, weights);
  };
  const auto plain = gradients(false), checkpointed = gradients(true);
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(plain[i], checkpointed[i])) << i;
}

TEST(Pixart, WeightNormalisationHoldsCrossAttentionToo) {
  const ModelSpec spec = tiny_pixart();
  const auto lengths = held_lengths(spec);
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].name.ends_with("attn2.to_k.weight")) {
      EXPECT_GT(lengths[i], 0);
    }
    // Rows of zero cannot be brought to a length.
    if (shapes[i].name.ends_with("scale_shift_table") ||
        shapes[i].name.ends_with("attn2.to_out.0.weight")) {
      EXPECT_EQ(lengths[i], 0);
    }
  }
}

}  // namespace
}  // namespace skerry::diffusion
