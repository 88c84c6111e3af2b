#include "diffusion/fused.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "diffusion/autocast.h"
#include "diffusion/near_reference.h"
#include "diffusion/product.h"

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

// What comes from a product under autocast is read and written as it is: the composition in fp32, rounded once. `rounding`:
// of a result or a gradient, beside its own.
void expect_rounded(std::vector<at::Tensor> operands, const std::vector<std::size_t>& in_bf16,
                    const Function& fused, const Function& composed, double rounding = 0) {
  std::vector<at::Tensor> wide;
  for (const std::size_t i : in_bf16)
    operands[i] = operands[i].detach().to(at::kBFloat16).set_requires_grad(true);
  for (const at::Tensor& operand : operands) {
    wide.push_back(operand.detach().to(at::kFloat).set_requires_grad(true));
  }
  const auto expect_near = [&](const at::Tensor& found, const at::Tensor& expected, const char* what) {
    const double own = found.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0;
    const auto allowed = expected.abs() * own + (rounding + 1e-5) * (1 + expected.abs().max());
    EXPECT_TRUE(((found.to(at::kFloat) - expected).abs() <= allowed).all().item<bool>())
        << what << " off by " << distance(found.to(at::kFloat), expected);
  };
  const at::Tensor found = fused(operands), expected = composed(wide);
  expect_near(found, expected, "the result");
  const at::Tensor gradient = at::randn_like(expected).to(found.scalar_type());
  const auto ours = torch::autograd::grad({found}, operands, {gradient});
  const auto theirs = torch::autograd::grad({expected}, wide, {gradient.to(at::kFloat)});
  for (std::size_t i = 0; i < ours.size(); ++i) expect_near(ours[i], theirs[i], "a gradient");
}

TEST(Fused, Bf16IsRoundedOnce) {
  for (const std::int64_t width : kWidths) {
    expect_rounded(
        random({{3, 5, width}, {3, 1, width}, {3, 1, width}}), {1, 2},
        [](const auto& in) {
          const at::Tensor out = fused::modulate(in[0], in[1], in[2]);
          EXPECT_EQ(out.scalar_type(), at::kBFloat16);
          return out;
        },
        [&](const auto& in) { return at::layer_norm(in[0], {width}, {}, {}, 1e-6) * (1 + in[2]) + in[1]; });
    expect_rounded(
        random({{3, 5, width}, {3, 5, width}, {3, 1, width}}), {1, 2},
        [](const auto& in) { return fused::add_gated(in[0], in[1], in[2]); },
        [](const auto& in) { return in[0] + in[1] * in[2]; });
    expect_rounded(
        random({{3, 5, width}}), {0}, [](const auto& in) { return fused::gelu(in[0]); },
        [](const auto& in) { return at::gelu(in[0], "tanh"); });
  }
  // Half a unit goes to the even one; what is no number stays none.
  const auto x = torch::tensor({1.0F, 1.00390625F, 1.01171875F, -1.00390625F, INFINITY, NAN}).view({1, 1, 6});
  auto y = at::zeros({1, 1, 6}, at::kBFloat16).set_requires_grad(true);
  const auto out = fused::add_gated(at::zeros({1, 1, 6}), y, at::ones({1, 1, 6}));
  EXPECT_TRUE(at::allclose(torch::autograd::grad({out}, {y}, {x})[0], x.to(at::kBFloat16), 0, 0, true));
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

TEST(Fused, AttentionInBf16) {
  if (!cpu_multiplies_bf16()) GTEST_SKIP() << "this CPU does not multiply bf16";
  for (const std::int64_t tokens : {5, 32}) {
    expect_rounded(
        random({{3, tokens, 3 * 24}}), {0},
        [](const auto& in) {
          const Autocast autocast(torch::kCPU, /*bf16=*/true);
          const at::Tensor out = fused::attention(in[0], 4);
          EXPECT_EQ(out.scalar_type(), at::kBFloat16);
          return out;
        },
        [](const auto& in) { return composed_attention(in[0], 4); }, 0x1p-7);
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

TEST_P(FastModel, IsNearTheReferenceForwardAndBackward) {
  testing::expect_near_reference(
      [](const ModelSpec& spec, const std::vector<at::Tensor>& weights) {
        return Dit(spec, weights, torch::kCPU, Kernels::kFast);
      },
      /*bf16=*/GetParam());
}
INSTANTIATE_TEST_SUITE_P(Precisions, FastModel, ::testing::Bool(),
                         [](const auto& made) { return std::string(made.param ? "bf16" : "fp32"); });

}  // namespace
}  // namespace skerry::diffusion
