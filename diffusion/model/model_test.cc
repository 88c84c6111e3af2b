// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/dit.h"

#include <ATen/autocast_mode.h>

#include <set>

#include "diffusion/kernels/product.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/testing/testing.h"

namespace skerry::diffusion {
namespace {

using namespace testing;
const torch::Device kCpu(torch::kCPU);

// Every weight random, so that no gate hides a part of the model.
Dit random_model(const ModelSpec& spec, bool gradients = false) {
  at::manual_seed(3);
  std::vector<at::Tensor> weights;
  for (const auto& parameter : parameter_shapes(spec)) {
    weights.push_back((at::randn(parameter.shape) * 0.2).set_requires_grad(gradients));
  }
  return Dit(spec, std::move(weights), kCpu);
}

std::size_t index_of(const ModelSpec& spec, const std::string& name) {
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].name == name) return i;
  }
  ADD_FAILURE() << name << " is not a parameter";
  return 0;
}

TEST(Dit, ParametersBearTheNamesOfTheExport) {
  const ModelSpec spec = tiny_model();
  std::set<std::string> names;
  for (const auto& parameter : parameter_shapes(spec)) names.insert(parameter.name);
  EXPECT_EQ(names.size(), 7U + 14 * spec.depth + 4);
  for (const char* name :
       {"pos_embed.proj.weight", "transformer_blocks.0.norm1.emb.timestep_embedder.linear_2.bias",
        "transformer_blocks.0.norm1.emb.class_embedder.embedding_table.weight",
        "transformer_blocks.1.norm1.linear.bias", "transformer_blocks.1.attn1.to_out.0.weight",
        "transformer_blocks.0.ff.net.0.proj.weight", "transformer_blocks.0.ff.net.2.bias",
        "proj_out_1.weight", "proj_out_2.bias"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("transformer_blocks.1.norm1.emb.timestep_embedder.linear_1.weight"));
}

TEST(Dit, StartsAsZeroAndAsAFunctionOfPosition) {
  const ModelSpec spec = tiny_model();
  const Dit model(spec, initial_weights(spec, 1, 0, 0), kCpu);
  const auto out =
      model.forward(at::randn({2, 1, 8, 8}), at::rand({2}), {.labels = at::zeros({2}, at::kLong)});
  EXPECT_EQ(out.abs().max().item<float>(), 0);
  const auto again = initial_weights(spec, 1, 0, 0);
  const auto other = initial_weights(spec, 1, 1, 0);
  EXPECT_TRUE(at::equal(again[0], model.weights()[0]));
  EXPECT_FALSE(at::equal(other[0], model.weights()[0]));
  EXPECT_FALSE(at::equal(initial_weights(spec, 1, 0, 1)[0], model.weights()[0]));
}

TEST(Dit, EmbeddersStartWithOneGainAtAnyWidth) {
  for (const std::uint32_t width : {64U, 256U}) {
    ModelSpec spec = tiny_model();
    spec.width = width;
    spec.heads = 4;
    spec.classes = 200;
    const auto weights = initial_weights(spec, 1, 0, 0);
    const double time = std::sqrt(1152.0 / width) * 0.02;
    EXPECT_NEAR(weights[2].std().item<double>(), time, 0.02 * time);
    EXPECT_NEAR(weights[6].std().item<double>(), 1, 0.02);
  }
}

TEST(Dit, EveryParameterMatters) {
  const ModelSpec spec = tiny_model();
  const Dit model = random_model(spec, true);
  const auto labels = at::arange(4, at::kLong);
  const auto out = model.forward(at::randn({4, 1, 8, 8}), at::rand({4}), {.labels = labels});
  const auto gradients = torch::autograd::grad({out.square().sum()}, model.weights());
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    // A key's bias adds the same to every score of a query: softmax does not
    // see it.
    if (shapes[i].name.ends_with("to_k.bias")) continue;
    EXPECT_GT(gradients[i].abs().max().item<float>(), 0) << shapes[i].name;
  }
}

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

// bf16 keeps eight bits, so a term is off by up to 0.4 %.
TEST(Dit, Bf16IsNearFp32ForwardAndBackward) {
  const ModelSpec spec = tiny_model();
  const Dit model = random_model(spec, true);
  const auto x = at::randn({4, 1, 8, 8});
  const auto t = at::rand({4});
  const auto labels = at::arange(4, at::kLong);
  const auto gradients = [&](const at::Tensor& out) {
    return torch::autograd::grad({out.to(at::kFloat).square().mean()}, model.weights());
  };
  const auto exact = model.forward(x, t, {.labels = labels});
  const auto rounded = [&] {
    const Autocast autocast(kCpu, true);
    return model.forward(x, t, {.labels = labels});
  }();
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
  EXPECT_GT(relative_error(rounded, exact), 1e-4);
  EXPECT_LT(relative_error(rounded, exact), 0.03);
  const auto expected = gradients(exact), found = gradients(rounded);
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& name = shapes[i].name;
    EXPECT_EQ(found[i].scalar_type(), at::kFloat) << name;
    if (name.ends_with("to_k.bias")) continue;  // zero but for rounding
    EXPECT_LT(relative_error(found[i], expected[i]), 0.06) << name;
  }
}

TEST(Product, Bf16RoundsOperandsAndResult) {
  const auto left = at::randn({2, 3, 64}), right = at::randn({2, 64, 5});
  const auto weight = right[0].t().contiguous(), bias = at::randn({5});
  const auto bf16 = [](const at::Tensor& tensor) {
    return tensor.to(at::kBFloat16).to(at::kFloat);
  };
  const Autocast autocast(kCpu, true);
  const auto products = diffusion::bmm(left, right), rows = diffusion::linear(left, weight, bias);
  ASSERT_EQ(products.scalar_type(), at::kBFloat16);
  ASSERT_EQ(rows.scalar_type(), at::kBFloat16);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(at::autocast_dispatch_keyset);
  // One unit in the last place of bf16 apart at most, where sums were taken in
  // another order.
  EXPECT_TRUE(
      at::allclose(products.to(at::kFloat), bf16(at::bmm(bf16(left), bf16(right))), 0.008, 1e-3));
  EXPECT_TRUE(at::allclose(rows.to(at::kFloat),
                           bf16(at::linear(bf16(left), bf16(weight), bf16(bias))), 0.008, 1e-3));
}

TEST(Dit, RowsOfABatchDoNotMeet) {
  const Dit model = random_model(tiny_model());
  const auto x = at::randn({3, 1, 8, 8});
  const auto t = at::rand({3});
  const auto labels = at::arange(3, at::kLong);
  const auto all = model.forward(x, t, {.labels = labels});
  const auto one =
      model.forward(x.slice(0, 1, 2), t.slice(0, 1, 2), {.labels = labels.slice(0, 1, 2)});
  EXPECT_LT((all.slice(0, 1, 2) - one).abs().max().item<float>(), 1e-5);
}

// Every path except the last projection is zero, so the picture shows its bias.
// Rows of the projection are ordered (row in patch, column in patch, channel).
TEST(Dit, UnpatchifiesRowColumnChannel) {
  ModelSpec spec = tiny_model();
  spec.channels = 2;
  auto weights = initial_weights(spec, 1, 0, 0);
  weights[index_of(spec, "proj_out_2.bias")] = at::arange(4 * 4 * 2, at::kFloat);
  const Dit model(spec, std::move(weights), kCpu);
  const auto out =
      model.forward(at::randn({1, 2, 8, 8}), at::rand({1}), {.labels = at::zeros({1}, at::kLong)});
  EXPECT_EQ(out[0][0][0][0].item<float>(), 0);
  EXPECT_EQ(out[0][1][0][0].item<float>(), 1);
  EXPECT_EQ(out[0][0][0][1].item<float>(), 2);
  EXPECT_EQ(out[0][0][1][0].item<float>(), 8);
  EXPECT_EQ(out[0][0][4][4].item<float>(), 0);
}

TEST(Dit, WeightsOfAnotherShapeAreRefusedByName) {
  const ModelSpec spec = tiny_model();
  const auto empty = storage::Safetensors::parse(storage::encode_safetensors({}, {}).value());
  ASSERT_TRUE(empty) << empty.error().message;
  const auto missing = load_weights(*empty, "ema/", spec);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("pos_embed.proj.weight"), std::string::npos);
  const std::string four(16, '\0');
  const auto bytes = storage::encode_safetensors(
                         {{"ema/pos_embed.proj.weight", storage::DType::kF32, {4}, four}}, {})
                         .value();
  const auto wrong = load_weights(storage::Safetensors::parse(bytes).value(), "ema/", spec);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skerry::diffusion
