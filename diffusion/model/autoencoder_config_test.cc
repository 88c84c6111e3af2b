// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/autoencoder_config.h"

#include <algorithm>
#include <fstream>

#include "base/temp_folder.h"
#include "diffusion/testing/testing.h"

namespace skerry::diffusion {
namespace {

class AutoencoderConfigTest : public ::testing::Test {
 protected:
  Result<AutoencoderConfig> read(const std::string& json) {
    std::ofstream(folder_ / "config.json") << json;
    return read_autoencoder_config(folder_.path());
  }
  std::string refusal(const std::string& keys) {
    const auto config = read(R"({"_class_name":"AutoencoderKL",)" + keys + "}");
    return config ? "accepted" : config.error().message;
  }
  TempFolder folder_;
};

TEST_F(AutoencoderConfigTest, WhatIsNotNamedIsDiffusersDefault) {
  const auto config = read(R"({"_class_name":"AutoencoderKL","shift_factor":null})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->latent_channels, 4U);
  EXPECT_EQ(config->block_out_channels, std::vector<std::uint32_t>{64});
  EXPECT_TRUE(config->use_post_quant_conv && config->mid_block_add_attention);
  EXPECT_EQ(config->scaling, (LatentScaling{.scale = 0.18215, .shift = 0}));
}

TEST_F(AutoencoderConfigTest, TheDecoderGoesBackThroughTheBlocks) {
  const auto config =
      read(R"({"_class_name":"AutoencoderKL","block_out_channels":[128,256,512,512],)"
           R"("layers_per_block":2,"up_block_types":["UpDecoderBlock2D","UpDecoderBlock2D",)"
           R"("UpDecoderBlock2D","UpDecoderBlock2D"]})");
  ASSERT_TRUE(config) << config.error().message;
  const std::vector<AutoencoderTensor> tensors = decoder_tensors(*config);
  EXPECT_EQ(tensors.size(), 140U);  // 138 of Stable Diffusion's decoder, and two of post_quant_conv
  const auto shape_of = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &AutoencoderTensor::name);
    return found == tensors.end() ? std::vector<std::int64_t>() : found->shape;
  };
  EXPECT_EQ(shape_of("decoder.conv_in.weight"), (std::vector<std::int64_t>{512, 4, 3, 3}));
  EXPECT_EQ(shape_of("decoder.up_blocks.2.resnets.0.conv_shortcut.weight"),
            (std::vector<std::int64_t>{256, 512, 1, 1}));
  EXPECT_EQ(shape_of("decoder.up_blocks.3.upsamplers.0.conv.weight"), std::vector<std::int64_t>());
  EXPECT_EQ(shape_of("decoder.conv_out.weight"), (std::vector<std::int64_t>{3, 128, 3, 3}));
}

TEST_F(AutoencoderConfigTest, WhatIsNotBuiltHereIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("_class_name":"VQModel")", R"(_class_name: expected "AutoencoderKL", found "VQModel")"},
      {R"("act_fn":"relu")", R"(act_fn: expected "silu", found "relu")"},
      {R"("up_block_types":["AttnUpDecoderBlock2D"])",
       R"("UpDecoderBlock2D" 1 times, found ["AttnUpDecoderBlock2D"])"},
      {R"("block_out_channels":[32,64])", R"("UpDecoderBlock2D" 2 times)"},
      {R"("norm_num_groups":48)", "norm_num_groups divides"},
      {R"("norm_num_groups":0)", "norm_num_groups divides"},
      {R"("block_out_channels":[],"up_block_types":[])", "one of them is not so"},
      {R"("latent_channels":65)", "1 to 64 latent_channels"},
      {R"("out_channels":2)", "1 or 3 out_channels"},
      {R"("latents_mean":[0.1])", "latents_mean: expected none, found [0.1]"},
      {R"("layers_per_block":1000000)", "layers_per_block"},
      {R"("scaling_factor":0)", "scaling_factor above 0"},
      {R"("latent_channels":"four")", "config.json: "}};
  for (const auto& [keys, words] : cases)
    EXPECT_NE(refusal(keys).find(words), std::string::npos) << refusal(keys);
  EXPECT_NE(read("[]").error().message.find("not a JSON object"), std::string::npos);
  EXPECT_EQ(read_autoencoder_config(folder_ / "none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace skerry::diffusion
