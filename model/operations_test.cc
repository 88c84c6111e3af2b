// SPDX-License-Identifier: Apache-2.0
#include "model/operations.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "model/shapes.h"

namespace skerry {
namespace {

// Peebles & Xie, table 1 and appendix: Gflops at latents of 32² with 4
// channels, counting a multiplication and an addition as one.
TEST(ForwardFlops, AreWhatThePaperOfDitCounts) {
  const std::pair<const char*, double> expected[] = {
      {"S/2", 6.06}, {"B/2", 23.01}, {"L/2", 80.71}, {"XL/2", 118.64}, {"XL/4", 29.05}};
  for (const auto& [name, gflops] : expected) {
    ModelSpec model = model_preset(name).value();
    model.image_size = 32;
    model.channels = 4;
    EXPECT_NEAR(forward_flops(model) / 2e9, gflops, 0.01 * gflops) << name;
  }
}

// Each matrix multiplies the rows that it is applied to: patches, words of the
// caption, or one row of a sample.
TEST(ForwardFlops, OfAPixartFollowTheShapesOfItsWeights) {
  ModelSpec model = model_preset("S/2").value();
  model.image_size = 32;
  model.channels = 4;
  model.caption_dim = 768;
  model.caption_tokens = 77;
  const double patches = 256, words = 77, width = 384;
  double products = model.depth * 2 * patches * (patches + words) * width;
  const auto has = [](const std::string& name, const char* part) {
    return name.find(part) != std::string::npos;
  };
  for (const ParameterShape& parameter : parameter_shapes(model)) {
    if (!parameter.name.ends_with(".weight")) continue;
    double numbers = 1;
    for (const std::int64_t extent : parameter.shape) numbers *= static_cast<double>(extent);
    const bool of_words = has(parameter.name, "caption_projection") ||
                          has(parameter.name, "attn2.to_k") || has(parameter.name, "attn2.to_v");
    products += numbers * (has(parameter.name, "adaln_single") ? 1 : of_words ? words : patches);
  }
  EXPECT_NEAR(forward_flops(model) / (2 * products), 1, 1e-9);
}

TEST(PublishedPeak, KnowsCardsByTheNamesOfTheirDriver) {
  EXPECT_EQ(published_peak("NVIDIA H200", "bf16"), 989.4e12);
  EXPECT_EQ(published_peak("NVIDIA H100 80GB HBM3", "bf16"), 989.4e12);
  EXPECT_EQ(published_peak("NVIDIA H100 PCIe", "bf16"), 756e12);
  EXPECT_EQ(published_peak("NVIDIA L40S", "fp32"), 91.6e12);
  EXPECT_EQ(published_peak("NVIDIA L4", "fp32"), 30.3e12);
  EXPECT_EQ(published_peak("cpu", "fp32"), std::nullopt);
  EXPECT_EQ(published_peak("NVIDIA GeForce RTX 5090", "bf16"), 209.5e12);
  EXPECT_EQ(published_peak("NVIDIA GeForce RTX 5080", "fp32"), 56.3e12);
  EXPECT_EQ(published_peak("NVIDIA B200", "bf16"), 2250e12);
  EXPECT_EQ(published_peak("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "bf16"), 503.8e12);
  EXPECT_EQ(published_peak("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "bf16"),
            438.9e12);
  EXPECT_EQ(published_peak("NVIDIA A10", "bf16"), 125e12);
  EXPECT_EQ(published_peak("NVIDIA A40", "bf16"), 149.7e12);
  EXPECT_EQ(published_peak("NVIDIA A30", "fp32"), 10.3e12);
  EXPECT_EQ(published_peak("NVIDIA L20", "bf16"), 119.5e12);
  EXPECT_EQ(published_peak("NVIDIA H20", "bf16"), 148e12);
}

TEST(PublishedPeak, TellsCardsApartWhoseNamesBeginAlike) {
  EXPECT_EQ(published_peak("NVIDIA GeForce RTX 4090", "bf16"), 165.2e12);
  EXPECT_EQ(published_peak("NVIDIA GeForce RTX 4090 D", "bf16"), 147.1e12);
  EXPECT_EQ(published_peak("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16"), std::nullopt);
  EXPECT_EQ(published_peak("NVIDIA GeForce RTX 3090 Ti", "bf16"), std::nullopt);
  EXPECT_EQ(published_peak("NVIDIA A100-SXM4-80GB", "bf16"), 312e12);
  EXPECT_EQ(published_peak("NVIDIA A10G", "bf16"), 70e12);
  EXPECT_EQ(published_peak("NVIDIA GB200", "bf16"), 2500e12);
  EXPECT_EQ(published_peak("NVIDIA L40", "bf16"), 181e12);
}

}  // namespace
}  // namespace skerry
