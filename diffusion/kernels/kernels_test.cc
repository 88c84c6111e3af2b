// SPDX-License-Identifier: Apache-2.0
#include "diffusion/kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "diffusion/kernels/product.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/testing/emulated_card.h"
#include "diffusion/testing/near_reference.h"

// One suite for every implementation of Kernels. The card is emulated: its
// kernels are compiled for the CPU.
namespace skerry::diffusion {
namespace {

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Kind {
  const char* name;
  std::shared_ptr<const Kernels> (*make)();
};
std::shared_ptr<const Kernels> emulated_kernels() {
  return cuda_kernels(std::make_shared<emulated::EmulatedCard>());
}

class KernelsTest : public ::testing::TestWithParam<Kind> {
 protected:
  const std::shared_ptr<const Kernels> kernels_ = GetParam().make();
  const Kernels& by() const { return *kernels_; }
  bool is_reference() const { return by().fingerprint().empty(); }
  // GELU alone: a product by the identity, without a bias.
  at::Tensor gelu(const at::Tensor& x) const {
    const auto options = x.options().requires_grad(false);
    return by().linear_gelu(x, at::eye(x.size(-1), options), at::zeros({x.size(-1)}, options));
  }
  // Between the products: rows [B,T,3W] of query, key and value.
  at::Tensor attention(const at::Tensor& rows, std::int64_t heads) const {
    const auto options = rows.options().requires_grad(false);
    const std::int64_t width = rows.size(2) / 3;
    Kernels::Projections parts;
    for (std::size_t i = 0; i < 3; ++i) {
      parts.weights[i] =
          at::eye(rows.size(2), options).narrow(0, static_cast<std::int64_t>(i) * width, width);
      parts.biases[i] = at::zeros({width}, options);
    }
    return by().attention(rows, parts, heads);
  }
};
INSTANTIATE_TEST_SUITE_P(All, KernelsTest,
                         ::testing::Values(Kind{"reference", &reference_kernels},
                                           Kind{"cpu", &cpu_kernels},
                                           Kind{"card", &emulated_kernels}),
                         [](const auto& made) { return std::string(made.param.name); });

// A width that is no multiple of a vector, and one that is.
constexpr std::int64_t kWidths[] = {36, 64};

std::vector<at::Tensor> random(const std::vector<std::vector<std::int64_t>>& shapes) {
  at::manual_seed(5);
  std::vector<at::Tensor> tensors;
  for (const auto& shape : shapes)
    tensors.push_back((at::randn(shape) * 1.5).set_requires_grad(true));
  return tensors;
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
  return (found - expected).abs().max().item<double>();
}

// Forward and backward, under a gradient that is not the same everywhere.
void expect_same(const std::vector<at::Tensor>& operands, const Function& fused,
                 const Function& composed) {
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

TEST_P(KernelsTest, ModulateIsLayerNormScaledAndShifted) {
  for (const std::int64_t width : kWidths) {
    expect_same(
        random({{3, 5, width}, {3, 1, width}, {3, 1, width}}),
        [this](const auto& in) { return by().modulate(in[0], in[1], in[2]); },
        [&](const auto& in) {
          return at::layer_norm(in[0], {width}, {}, {}, 1e-6) * (1 + in[2]) + in[1];
        });
  }
}

TEST_P(KernelsTest, AddGatedIsAProductAndASum) {
  for (const std::int64_t width : kWidths) {
    expect_same(
        random({{3, 5, width}, {3, 5, width}, {3, 1, width}}),
        [this](const auto& in) { return by().add_gated(in[0], in[1], in[2]); },
        [](const auto& in) { return in[0] + in[1] * in[2]; });
  }
}

TEST_P(KernelsTest, GeluIsTheFormWithTanh) {
  for (const std::int64_t width : kWidths) {
    expect_same(
        random({{3, 5, width}}), [this](const auto& in) { return gelu(in[0]); },
        [](const auto& in) { return at::gelu(in[0], "tanh"); });
  }
}

TEST_P(KernelsTest, GeluAndItsSlopeHoldFarOut) {
  // A row each: what is infinite in one is no other's.
  const auto x = torch::tensor({-1e30F, -100.0F, -20.0F, 0.0F, 20.0F, 100.0F, 1e6F})
                     .view({1, 7, 1})
                     .repeat({1, 1, 4})
                     .set_requires_grad(true);
  const auto out = gelu(x);
  EXPECT_TRUE(at::allclose(out, at::relu(x), 0, 1e-6));
  const auto slope =
      torch::autograd::grad({out.sum()}, {x})[0].slice(1, 1, 6).select(2, 0).flatten();
  EXPECT_TRUE(at::allclose(slope, torch::tensor({0.0F, 0.0F, 0.5F, 1.0F, 1.0F}), 0, 1e-6));
  EXPECT_TRUE(gelu(at::full({1, 1, 4}, NAN)).isnan().all().item<bool>());
}

// What comes from a product under autocast is read and written as it is: the
// composition in fp32, rounded once. `rounding`: of a result or a gradient,
// beside its own.
void expect_rounded(std::vector<at::Tensor> operands, const std::vector<std::size_t>& in_bf16,
                    const Function& fused, const Function& composed, double rounding = 0) {
  std::vector<at::Tensor> wide;
  for (const std::size_t i : in_bf16)
    operands[i] = operands[i].detach().to(at::kBFloat16).set_requires_grad(true);
  for (const at::Tensor& operand : operands) {
    wide.push_back(operand.detach().to(at::kFloat).set_requires_grad(true));
  }
  const auto expect_near = [&](const at::Tensor& found, const at::Tensor& expected,
                               const char* what) {
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

TEST_P(KernelsTest, Bf16IsRoundedOnce) {
  if (is_reference()) GTEST_SKIP() << "the reference rounds between its operators";
  for (const std::int64_t width : kWidths) {
    expect_rounded(
        random({{3, 5, width}, {3, 1, width}, {3, 1, width}}), {1, 2},
        [this](const auto& in) {
          const at::Tensor out = by().modulate(in[0], in[1], in[2]);
          EXPECT_EQ(out.scalar_type(), at::kBFloat16);
          return out;
        },
        [&](const auto& in) {
          return at::layer_norm(in[0], {width}, {}, {}, 1e-6) * (1 + in[2]) + in[1];
        });
    expect_rounded(
        random({{3, 5, width}, {3, 5, width}, {3, 1, width}}), {1, 2},
        [this](const auto& in) { return by().add_gated(in[0], in[1], in[2]); },
        [](const auto& in) { return in[0] + in[1] * in[2]; });
    expect_rounded(
        random({{3, 5, width}}), {0}, [this](const auto& in) { return gelu(in[0]); },
        [](const auto& in) { return at::gelu(in[0], "tanh"); });
  }
  // Half a unit goes to the even one; what is not finite stays what it is.
  const auto x =
      torch::tensor({1.0F, 1.00390625F, 1.01171875F, -1.00390625F, 3e38F, INFINITY, -INFINITY, NAN})
          .view({1, 1, 8});
  auto y = at::zeros({1, 1, 8}, at::kBFloat16).set_requires_grad(true);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto out = by().add_gated(at::zeros({1, 1, 8}), y, at::ones({1, 1, 8}, type));
    EXPECT_TRUE(
        at::allclose(torch::autograd::grad({out}, {y}, {x})[0], x.to(at::kBFloat16), 0, 0, true));
  }
}

at::Tensor composed_attention(const at::Tensor& rows, std::int64_t heads) {
  const auto parts = rows.view({rows.size(0), rows.size(1), 3, heads, -1}).permute({2, 0, 3, 1, 4});
  const auto scores = at::matmul(parts[0], parts[1].transpose(2, 3)) /
                      std::sqrt(static_cast<double>(parts.size(4)));
  return at::matmul(scores.softmax(-1), parts[2])
      .transpose(1, 2)
      .reshape({rows.size(0), rows.size(1), -1});
}

TEST_P(KernelsTest, AttentionIsASoftmaxBetweenTwoProducts) {
  for (const std::int64_t tokens : {5, 32}) {
    expect_same(
        random({{3, tokens, 3 * 24}}), [this](const auto& in) { return attention(in[0], 4); },
        [](const auto& in) { return composed_attention(in[0], 4); });
  }
}

TEST_P(KernelsTest, AttentionInBf16) {
  if (is_reference() || !cpu_multiplies_bf16()) GTEST_SKIP() << "no bf16 between the products here";
  for (const std::int64_t tokens : {5, 32}) {
    expect_rounded(
        random({{3, tokens, 3 * 24}}), {0},
        [this](const auto& in) {
          const Autocast autocast(torch::kCPU, /*bf16=*/true);
          const at::Tensor out = attention(in[0], 4);
          EXPECT_EQ(out.scalar_type(), at::kBFloat16);
          return out;
        },
        [](const auto& in) { return composed_attention(in[0], 4); }, 0x1p-7);
  }
}

TEST_P(KernelsTest, AttentionHoldsWhereScoresAreLarge) {
  const auto rows = random({{1, 6, 3 * 8}})[0].detach() * 40;
  EXPECT_LT(distance(attention(rows, 2), composed_attention(rows, 2)), 1e-4);
  auto broken = rows.clone();
  broken[0][2][3] = NAN;
  broken = attention(broken, 2);
  EXPECT_TRUE(broken.isnan().any().item<bool>());
}

TEST_P(KernelsTest, AModelIsNearTheReferenceForwardAndBackward) {
  if (is_reference()) GTEST_SKIP() << "it is the reference";
  for (const ModelSpec& spec : {testing::tiny_model(), testing::tiny_pixart()}) {
    for (const bool bf16 : {false, true}) testing::expect_near_reference(spec, kernels_, bf16);
  }
}

// In fp32: in bf16 the loops of the CPU round between a product and its GELU.
TEST_P(KernelsTest, PassTheCheckOfANewCard) {
  const auto checked = check_against_reference(by(), torch::kCPU, 64, {at::kFloat});
  EXPECT_TRUE(checked) << checked.error().message;
}

}  // namespace
}  // namespace skerry::diffusion
