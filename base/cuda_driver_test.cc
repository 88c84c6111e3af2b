// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skerry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kBlind =
    "skerry-engine 0.1.0 (LibTorch 2.11.0 for CUDA 13.0, no CUDA device)";

TEST(CudaDriver, VersionsAreComparedNumberByNumber) {
  EXPECT_TRUE(is_older("570.124.06", "580.65"));
  EXPECT_TRUE(is_older("580.9", "580.65"));
  EXPECT_TRUE(is_older("99.1", "580.65"));
  EXPECT_FALSE(is_older("580.65", "580.65"));
  EXPECT_FALSE(is_older("580.65.06", "580.65"));
  EXPECT_FALSE(is_older("1000.1", "580.65"));
}

TEST(CudaDriver, WhatIsNoVersionIsNotOlder) {
  for (const char* version :
       {"", "unknown", "570.", ".570", "570..1", "570.124 beta", "99999999999999"}) {
    EXPECT_FALSE(is_older(version, "580.65")) << version;
  }
}

TEST(CudaDriver, EachMajorCudaHasALeastDriver) {
  EXPECT_EQ(least_driver("13.0"), "580.65");
  EXPECT_EQ(least_driver("13.2"), "580.65");
  EXPECT_EQ(least_driver("12.8"), "525.60.13");
  EXPECT_EQ(least_driver("11.8"), "450.80.02");
  EXPECT_EQ(least_driver("14.0"), std::nullopt);
  EXPECT_EQ(least_driver(""), std::nullopt);
}

TEST(CudaDriver, ADriverThatIsTooOldIsNamedWithWhatIsNeeded) {
  const auto trouble = why_no_card(kBlind, "570.124.06");
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->found, AllOf(HasSubstr("570.124.06"), HasSubstr("CUDA 13.0 needs 580.65")));
  EXPECT_THAT(trouble->todo, HasSubstr("./dev setup --torch"));
}

TEST(CudaDriver, ANewDriverIsNotBlamed) {
  const auto trouble = why_no_card(kBlind, "580.65.06");
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->todo, HasSubstr("passed into the container"));
  const auto older_cuda = why_no_card("LibTorch 2.7.0 for CUDA 12.8, no CUDA device", "570.124.06");
  ASSERT_TRUE(older_cuda);
  EXPECT_THAT(older_cuda->todo, HasSubstr("passed into the container"));
}

TEST(CudaDriver, AnEngineWithoutCudaNeedsNoDriver) {
  const auto trouble = why_no_card("LibTorch 2.11.0 without CUDA, no CUDA device", "470.1");
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->found, HasSubstr("built without CUDA"));
}

TEST(CudaDriver, AnEngineThatSeesACardIsWell) {
  EXPECT_FALSE(why_no_card("LibTorch 2.11.0 for CUDA 13.0, 1 CUDA device", "570.124.06"));
  EXPECT_FALSE(why_no_card("", "570.124.06"));
}

}  // namespace
}  // namespace skerry
