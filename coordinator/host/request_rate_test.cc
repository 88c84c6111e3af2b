// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/request_rate.h"

#include <gtest/gtest.h>

namespace skerry::coordinator {
namespace {

using Verdict = RequestRate::Verdict;

struct Rated : ::testing::Test {
  RequestRate rate;
  Duration now = std::chrono::hours(1);
  int heard(const std::string& key, int times) {
    int count = 0;
    for (int i = 0; i < times; ++i) count += rate.ask(key, now) == Verdict::kHeard ? 1 : 0;
    return count;
  }
};

TEST_F(Rated, SoManyAtOnceAndSoManyASecondFromThenOn) {
  EXPECT_EQ(heard("ada", 10'000), kRequestsAtOnce);
  now += std::chrono::seconds(1);
  EXPECT_EQ(heard("ada", 10'000), std::chrono::seconds(1) / kRequestInterval);
  now += std::chrono::hours(1);
  EXPECT_EQ(heard("ada", 10'000), kRequestsAtOnce) << "a silence is not saved up";
}

TEST_F(Rated, OneKeyCostsNoOther) {
  EXPECT_EQ(heard("mallory", 10'000), kRequestsAtOnce);
  EXPECT_EQ(heard("ada", 10), 10);
}

TEST_F(Rated, TheFirstOfManyIsToldApart) {
  EXPECT_EQ(heard("ada", kRequestsAtOnce), kRequestsAtOnce);
  EXPECT_EQ(rate.ask("ada", now), Verdict::kFirstDropped);
  EXPECT_EQ(rate.ask("ada", now), Verdict::kDropped);
  now += kRequestInterval;
  EXPECT_EQ(rate.ask("ada", now), Verdict::kHeard);
  EXPECT_EQ(rate.ask("ada", now), Verdict::kFirstDropped);
}

TEST_F(Rated, WhoIsSilentIsForgotten) {
  heard("mallory", 10'000);
  heard("ada", 1);
  now += std::chrono::seconds(1);
  rate.forget(now);
  EXPECT_EQ(rate.size(), 1u);
  now += std::chrono::seconds(2);
  rate.forget(now);
  EXPECT_EQ(rate.size(), 0u);
}

}  // namespace
}  // namespace skerry::coordinator
