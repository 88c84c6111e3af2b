// SPDX-License-Identifier: Apache-2.0
// The text encoder on the pretended card. tests/oracle/text_oracle.py holds it
// to transformers on the CPU.
#include "diffusion/model/text_encoder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "diffusion/testing/pretended_card.h"
#include "diffusion/testing/test_images.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

constexpr std::size_t kCaptions = 3, kTokens = 7;

// A folder with an encoder of random weights.
void write_encoder(const TemporaryFolder& folder) {
  folder.write("config.json",
               R"({"model_type": "t5", "vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 64,
                   "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"})");
  folder.write("spiece.model", "");
  torch::manual_seed(1);
  std::vector<at::Tensor> weights;
  std::vector<storage::TensorView> views;
  for (const TextEncoderTensor& tensor :
       text_encoder_tensors(*read_text_encoder_config(folder.path(".")))) {
    weights.push_back(at::randn(tensor.shape) * (tensor.shape.size() == 1 ? 1 : 0.2));
    views.push_back(
        {tensor.name,
         storage::DType::kF32,
         {tensor.shape.begin(), tensor.shape.end()},
         {static_cast<const char*>(weights.back().data_ptr()), weights.back().nbytes()}});
  }
  ASSERT_TRUE(storage::write_safetensors(folder.path("model.safetensors"), views, {}));
}

at::Tensor encode(const TemporaryFolder& folder, int device) {
  const auto files = TextEncoderFiles::open(folder.path("."));
  EXPECT_TRUE(files) << files.error().message;
  const auto opened = open_text_encoder(*files, device, 1);
  EXPECT_TRUE(opened) << opened.error().message;
  std::vector<std::int32_t> ids(kCaptions * kTokens);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 50);
  const auto tokens = opened->encoder->encode(ids, kCaptions);
  EXPECT_TRUE(tokens) << tokens.error().message;
  return at::tensor(*tokens);
}

TEST(TextEncoder, ComputesOnACardInBf16) {
  PretendedCard::device();
  const TemporaryFolder folder;
  write_encoder(folder);
  const at::Tensor exact = encode(folder, -1);
  PretendedCard::forget();
  const at::Tensor found = encode(folder, 0);
  EXPECT_GT(PretendedCard::counts().operators, 20);
  EXPECT_TRUE(found.equal(found.to(at::kBFloat16).to(at::kFloat))) << "not of 16 bits";
  const double error = (found - exact).norm().item<double>() / exact.norm().item<double>();
  EXPECT_GT(error, 1e-4);
  EXPECT_LT(error, 0.03);
}

}  // namespace
}  // namespace skerry::diffusion
