// SPDX-License-Identifier: Apache-2.0
// Sampling by embeddings of prompts. Against the stock pipeline of diffusers:
// tests/oracle/export_oracle.py.
#include <torch/torch.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "diffusion/model/weights.h"
#include "diffusion/sample/sample.h"
#include "diffusion/testing/testing.h"

namespace skerry::diffusion {
namespace {

using namespace testing;
using ::testing::HasSubstr;

storage::TensorView view_of(const std::string& name, const at::Tensor& tensor) {
  const auto type = tensor.scalar_type() == at::kLong ? storage::DType::kI64 : storage::DType::kF32;
  return {name,
          type,
          {tensor.sizes().begin(), tensor.sizes().end()},
          {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()}};
}

// One expert of random weights.
class PromptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "router");
    std::filesystem::create_directories(folder_ / "expert_0");
    write_index(R"("patch_size":4,"caption_dim":12)");
    const std::vector<std::int64_t> counts{40, 0};
    const std::string_view bytes(reinterpret_cast<const char*>(counts.data()), 16);
    ASSERT_TRUE(storage::write_safetensors(folder_ / "router/partition-0.safetensors",
                                           {{"label_counts", storage::DType::kI64, {2}, bytes}},
                                           {}));
    ModelSpec model = tiny_pixart();
    model.classes = 1;
    std::vector<storage::TensorView> views;
    std::vector<at::Tensor> weights;
    at::manual_seed(1);
    for (const auto& parameter : parameter_shapes(model)) {
      weights.push_back(at::randn(parameter.shape) * 0.2);
      views.push_back(view_of(parameter.name, weights.back()));
    }
    ASSERT_TRUE(storage::write_safetensors(folder_ / "expert_0/diffusion_pytorch_model.safetensors",
                                           views, {}));
  }
  void write_index(const std::string& shape) {
    std::ofstream(folder_ / "ensemble.json")
        << R"({"format":1,"run":"r","run_id":"r-0","dataset":"d","classes":["a"],"image_size":8,)"
        << R"("channels":1,"experts":[{"index":0}],"model":{"width":16,"depth":2,"heads":2,)"
        << shape << "}}";
  }
  // Prompts `which` of three, of 1, 3 and 2 tokens; the third is the null
  // caption.
  std::string prompts(const std::vector<std::int64_t>& which, std::int64_t dim = 12) {
    at::manual_seed(2);
    at::Tensor embeddings = at::randn({3, 3, dim}).to(at::kHalf).to(at::kFloat);
    const at::Tensor mask = torch::tensor({{0, 1, 0}, {1, 1, 1}, {1, 1, 0}}, at::kLong);
    const at::Tensor null = embeddings[2].narrow(0, 0, 2).contiguous();
    const at::Tensor rows = torch::tensor(which, at::kLong);
    embeddings = embeddings.index_select(0, rows);
    const at::Tensor masks = mask.index_select(0, rows);
    EXPECT_TRUE(storage::write_safetensors(
        folder_ / "prompts",
        {view_of("embeddings", embeddings), view_of("mask", masks), view_of("null", null)}, {}));
    return folder_ / "prompts";
  }
  static SampleSpec spec(std::string prompts, std::uint32_t count, double guidance = 2) {
    SampleSpec spec;
    spec.count = count;
    spec.steps = 4;
    spec.guidance = guidance;
    spec.device = -1;
    spec.keep_values = true;
    spec.prompt_embeddings = std::move(prompts);
    return spec;
  }
  // [n,64]
  at::Tensor draw(const SampleSpec& spec) {
    const auto samples = sample_ensemble(folder_.path(), spec, nullptr);
    EXPECT_TRUE(samples) << (samples ? "" : samples.error().message);
    if (!samples) return at::zeros({spec.count, 64});
    EXPECT_EQ(samples->labels, std::vector<std::int32_t>(spec.count, -1));
    return torch::tensor(samples->values).view({spec.count, 64});
  }
  std::string refusal(const SampleSpec& spec) {
    const auto samples = sample_ensemble(folder_.path(), spec, nullptr);
    EXPECT_FALSE(samples);
    if (samples) return "";
    EXPECT_EQ(samples.error().code, ErrorCode::kInvalid);
    return samples.error().message;
  }

  TempFolder folder_;
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST_F(PromptTest, PromptsComeInTurnWhateverSharesTheBatch) {
  const at::Tensor both = draw(spec(prompts({0, 1}), 4));
  const at::Tensor first = draw(spec(prompts({0}), 4)), second = draw(spec(prompts({1}), 4));
  for (const std::int64_t i : {0, 1, 2, 3}) {
    const bool is_first = i % 2 == 0;
    EXPECT_LT(distance(both[i], (is_first ? first : second)[i]), 1e-5);
    EXPECT_GT(distance(both[i], (is_first ? second : first)[i]), 0.01);
  }
}

TEST_F(PromptTest, GuidanceLeadsAwayFromTheNullCaption) {
  const at::Tensor null = draw(spec(prompts({2}), 2, 1));
  EXPECT_LT(distance(draw(spec(prompts({2}), 2, 5)), null), 1e-4);
  const at::Tensor plain = draw(spec(prompts({1}), 2, 1));
  EXPECT_GT(distance(draw(spec(prompts({1}), 2, 5)), plain), 0.01);
  EXPECT_LT(distance(draw(spec(prompts({1}), 2, 0)), null), 1e-4);
}

TEST_F(PromptTest, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(refusal(spec("", 2)), HasSubstr("was trained on captions: expected --prompt"));
  EXPECT_THAT(refusal(spec(prompts({0}, 10), 2)), HasSubstr("expected embeddings [N,L,12]"));
  const std::string missing = folder_ / "missing";
  EXPECT_FALSE(sample_ensemble(folder_.path(), spec(missing, 2), nullptr));
}

TEST_F(PromptTest, AnEnsembleWithoutCaptionsTakesNoPrompt) {
  write_index(R"("patch_size":4)");
  ModelSpec dit = tiny_model();
  dit.classes = 1;
  const std::vector<at::Tensor> weights = initial_weights(dit, 1, 0, 0);
  std::vector<storage::TensorView> views;
  for (std::size_t i = 0; const auto& parameter : parameter_shapes(dit))
    views.push_back(view_of(parameter.name, weights[i++]));
  ASSERT_TRUE(storage::write_safetensors(folder_ / "expert_0/diffusion_pytorch_model.safetensors",
                                         views, {}));
  EXPECT_THAT(refusal(spec(prompts({0}), 2)), HasSubstr("leave --prompt-embeddings out"));
}

}  // namespace
}  // namespace skerry::diffusion
