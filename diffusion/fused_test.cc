#include "diffusion/fused.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "diffusion/autocast.h"
#include "diffusion/model.h"
#include "diffusion/testing.h"

namespace skerry::diffusion {
namespace {

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// A width that is no multiple of a vector, and one that is.
constexpr std::int64_t kWidths[] = {36, 64};

std::vector<at::Tensor> random(const std::vector<std::vector<std::int64_t>>& shapes) {
  at::manual_seed(5);
  std::vector<at::Tensor> tensors;
  for (const auto& shape : shapes) tensors.push_back((at::randn(shape) * 1.5).set_requires_grad(true));
  return tensors;
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
  return (found - expected).abs().max().item<double>();
}

// Forward and backward, under a gradient that is not the same everywhere.
void expect_same(const std::vector<at::Tensor>& operands, const Function& fused, const Function& composed) {
  const at::Tensor found = fused(operands), expected = composed(operands);
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_LT(distance(found, expected), 2e-6 * (1 + expected.abs().max().item<double>()));
  const at::Tensor gradient = at::randn_like(expected);
  const auto ours = torch::autograd::grad({found}, operands, {gradient});
  const auto theirs = torch::autograd::grad({expected}, operands, {gradient});
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LT(distance(ours[i], theirs[i]), 5e-6 * (1 + theirs[i].abs().max().item<double>()))
        << "operand " << i;
  }
}

TEST(Fused, ModulateIsLayerNormScaledAndShifted) {
  for (const std::int64_t width : kWidths) {
    expect_same(
        random({{3, 5, width}, {3, 1, width}, {3, 1, width}}),
        [](const auto& in) { return fused::modulate(in[0], in[1], in[2]); },
        [&](const auto& in) { return at::layer_norm(in[0], {width}, {}, {}, 1e-6) * (1 + in[2]) + in[1]; });
  }
}

TEST(Fused, AddGatedIsAProductAndASum) {
  for (const std::int64_t width : kWidths) {
    expect_same(
        random({{3, 5, width}, {3, 5, width}, {3, 1, width}}),
        [](const auto& in) { return fused::add_gated(in[0], in[1], in[2]); },
        [](const auto& in) { return in[0] + in[1] * in[2]; });
  }
}

TEST(Fused, GeluIsTheFormWithTanh) {
  for (const std::int64_t width : kWidths) {
    expect_same(
        random({{3, 5, width}}), [](const auto& in) { return fused::gelu(in[0]); },
        [](const auto& in) { return at::gelu(in[0], "tanh"); });
  }
}

TEST(Fused, GeluAndItsSlopeHoldFarOut) {
  const auto x = torch::tensor({-1e30F, -100.0F, -20.0F, 0.0F, 20.0F, 100.0F, 1e6F})
                     .view({1, 1, 7})
                     .set_requires_grad(true);
  const auto out = fused::gelu(x);
  EXPECT_TRUE(at::allclose(out, at::relu(x), 0, 1e-6));
  const auto slope = torch::autograd::grad({out.slice(2, 1, 6).sum()}, {x})[0].slice(2, 1, 6).flatten();
  EXPECT_TRUE(at::allclose(slope, torch::tensor({0.0F, 0.0F, 0.5F, 1.0F, 1.0F}), 0, 1e-6));
  EXPECT_TRUE(fused::gelu(at::full({1, 1, 1}, NAN)).isnan().item<bool>());
}

at::Tensor composed_attention(const at::Tensor& rows, std::int64_t heads) {
  const auto parts = rows.view({rows.size(0), rows.size(1), 3, heads, -1}).permute({2, 0, 3, 1, 4});
  const auto scores =
      at::matmul(parts[0], parts[1].transpose(2, 3)) / std::sqrt(static_cast<double>(parts.size(4)));
  return at::matmul(scores.softmax(-1), parts[2]).transpose(1, 2).reshape({rows.size(0), rows.size(1), -1});
}

TEST(Fused, AttentionIsASoftmaxBetweenTwoProducts) {
  for (const std::int64_t tokens : {5, 32}) {
    expect_same(
        random({{3, tokens, 3 * 24}}), [](const auto& in) { return fused::attention(in[0], 4); },
        [](const auto& in) { return composed_attention(in[0], 4); });
  }
}

TEST(Fused, AttentionHoldsWhereScoresAreLarge) {
  const auto rows = random({{1, 6, 3 * 8}})[0].detach() * 40;
  EXPECT_LT(distance(fused::attention(rows, 2), composed_attention(rows, 2)), 1e-4);
  auto broken = rows.clone();
  broken[0][2][3] = NAN;
  broken = fused::attention(broken, 2);
  EXPECT_TRUE(broken.isnan().any().item<bool>());
}

class FastModel : public ::testing::TestWithParam<bool> {};

// The whole model by both kernels: velocities, and the gradient of every weight.
TEST_P(FastModel, IsNearTheReferenceForwardAndBackward) {
  const bool bf16 = GetParam();
  const ModelSpec spec = testing::tiny_model();
  std::vector<at::Tensor> weights;
  at::manual_seed(3);
  for (const auto& parameter : parameter_shapes(spec)) {
    weights.push_back((at::randn(parameter.shape) * 0.2).set_requires_grad(true));
  }
  const auto x = at::randn({4, 1, 8, 8}), t = at::rand({4});
  const auto velocity = [&](Kernels kernels) {
    const Autocast autocast(torch::kCPU, bf16);
    return Dit(spec, weights, torch::kCPU, kernels).forward(x, t, at::arange(4, at::kLong)).to(at::kFloat);
  };
  const auto error = [](const at::Tensor& found, const at::Tensor& expected) {
    return ((found - expected).norm() / expected.norm()).item<double>();
  };
  const auto reference = velocity(Kernels::kReference), fast = velocity(Kernels::kFast);
  EXPECT_FALSE(at::equal(reference, fast));
  EXPECT_LT(error(fast, reference), bf16 ? 0.02 : 1e-5);
  const auto expected = torch::autograd::grad({reference.square().mean()}, weights);
  const auto found = torch::autograd::grad({fast.square().mean()}, weights);
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (shapes[i].name.ends_with("to_k.bias")) continue;  // zero but for rounding
    EXPECT_LT(error(found[i], expected[i]), bf16 ? 0.05 : 1e-4) << shapes[i].name;
  }
}
INSTANTIATE_TEST_SUITE_P(Precisions, FastModel, ::testing::Bool(),
                         [](const auto& made) { return std::string(made.param ? "bf16" : "fp32"); });

}  // namespace
}  // namespace skerry::diffusion
