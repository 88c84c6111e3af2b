#include "diffusion/model.h"

#include <set>

#include "diffusion/testing.h"

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
  const auto out = model.forward(at::randn({2, 1, 8, 8}), at::rand({2}), at::zeros({2}, at::kLong));
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
  const auto out = model.forward(at::randn({4, 1, 8, 8}), at::rand({4}), labels);
  const auto gradients = torch::autograd::grad({out.square().sum()}, model.weights());
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    // A key's bias adds the same to every score of a query: softmax does not see it.
    if (shapes[i].name.ends_with("to_k.bias")) continue;
    EXPECT_GT(gradients[i].abs().max().item<float>(), 0) << shapes[i].name;
  }
}

TEST(Dit, RowsOfABatchDoNotMeet) {
  const Dit model = random_model(tiny_model());
  const auto x = at::randn({3, 1, 8, 8});
  const auto t = at::rand({3});
  const auto labels = at::arange(3, at::kLong);
  const auto all = model.forward(x, t, labels);
  const auto one = model.forward(x.slice(0, 1, 2), t.slice(0, 1, 2), labels.slice(0, 1, 2));
  EXPECT_LT((all.slice(0, 1, 2) - one).abs().max().item<float>(), 1e-5);
}

// With every path but the last projection shut, its bias is what the picture shows: rows of the projection
// are ordered (row in patch, column in patch, channel).
TEST(Dit, UnpatchifiesRowColumnChannel) {
  ModelSpec spec = tiny_model();
  spec.channels = 2;
  auto weights = initial_weights(spec, 1, 0, 0);
  weights[index_of(spec, "proj_out_2.bias")] = at::arange(4 * 4 * 2, at::kFloat);
  const Dit model(spec, std::move(weights), kCpu);
  const auto out = model.forward(at::randn({1, 2, 8, 8}), at::rand({1}), at::zeros({1}, at::kLong));
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
  const auto bytes =
      storage::encode_safetensors({{"ema/pos_embed.proj.weight", storage::DType::kF32, {4}, four}}, {})
          .value();
  const auto wrong = load_weights(storage::Safetensors::parse(bytes).value(), "ema/", spec);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skerry::diffusion
