// SPDX-License-Identifier: Apache-2.0
// The split and the partition table: pure functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/random.h"
#include "diffusion/formats/split.h"
#include "diffusion/formats/table.h"

namespace skerry::diffusion {
namespace {

TEST(Split, HalvesAreDisjointAndWhatIsLeftTrains) {
  for (const std::uint32_t count : {3U, 40U, 100U, 60'000U, 400'000U}) {
    const Split split = split_samples(count, 7);
    std::set<std::uint32_t> all;
    for (const auto* part : {&split.train, &split.fit, &split.test}) {
      EXPECT_FALSE(part->empty());
      EXPECT_TRUE(std::is_sorted(part->begin(), part->end()));
      for (const std::uint32_t row : *part)
        EXPECT_TRUE(all.insert(row).second) << row << " is in two parts";
    }
    EXPECT_EQ(all.size(), count);
    EXPECT_EQ(*all.rbegin(), count - 1);
    const std::size_t held = split.fit.size() + split.test.size();
    EXPECT_EQ(held, std::clamp<std::size_t>(count / 20, 2, 10'000));
    EXPECT_LE(split.test.size() - split.fit.size(), 1U);
  }
}

TEST(Split, DependsOnTheSeedAlone) {
  EXPECT_EQ(split_samples(1000, 1).test, split_samples(1000, 1).test);
  EXPECT_NE(split_samples(1000, 1).test, split_samples(1000, 2).test);
}

struct Cloud {
  std::vector<float> centroids;
  std::vector<std::uint64_t> counts;
};

// Fine centroids in a few blobs of very unequal weight: nearest coarse centroid
// alone would be far from balanced.
Cloud lopsided_cloud(std::size_t fine, std::size_t features, std::uint64_t seed) {
  Stream stream(Position{.seed = seed, .purpose = Purpose::kSimulation});
  Cloud cloud;
  for (std::size_t j = 0; j < fine; ++j) {
    const double blob = j % 10 < 7 ? 0 : static_cast<double>(j % 10);
    for (std::size_t f = 0; f < features; ++f) {
      cloud.centroids.push_back(static_cast<float>((f == 0 ? blob : 0) + 0.3 * stream.normal()));
    }
    cloud.counts.push_back(20 + stream.below(80));
  }
  return cloud;
}

TEST(Table, LoadsStayWithinBothCaps) {
  for (const std::size_t experts : {1U, 2U, 4U, 8U, 13U, 32U}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Cloud cloud = lopsided_cloud(512, 6, seed);
      const PartitionTable table = build_table(cloud.centroids, 6, cloud.counts, experts, seed);
      const double total = static_cast<double>(
          std::accumulate(cloud.counts.begin(), cloud.counts.end(), std::uint64_t{0}));
      std::vector<std::uint64_t> load(experts);
      for (std::size_t j = 0; j < cloud.counts.size(); ++j)
        load.at(static_cast<std::size_t>(table.expert[j])) += cloud.counts[j];
      EXPECT_EQ(load, table.load);
      EXPECT_TRUE(table.within_caps);
      for (const std::uint64_t l : load) {
        EXPECT_GE(static_cast<double>(l), kLowCap * total / static_cast<double>(experts));
        EXPECT_LE(static_cast<double>(l), kHighCap * total / static_cast<double>(experts));
      }
      EXPECT_LE(table.ratio(), kHighCap / kLowCap);
    }
  }
}

TEST(Table, SeparateGroupsOfEqualWeightStayWhole) {
  Cloud cloud;
  for (int j = 0; j < 40; ++j) {
    cloud.centroids.push_back(static_cast<float>(10 * (j % 4)) + 0.01F * static_cast<float>(j));
    cloud.counts.push_back(50);
  }
  const PartitionTable table = build_table(cloud.centroids, 1, cloud.counts, 4, 0);
  for (std::size_t j = 4; j < 40; ++j) EXPECT_EQ(table.expert[j], table.expert[j % 4]);
  EXPECT_TRUE(table.within_caps);
}

TEST(Table, NoExpertIsEmptyEvenWhereTheCapsCannotHold) {
  Cloud cloud{{0, 1, 2, 3}, {1000, 1, 1, 1}};
  const PartitionTable table = build_table(cloud.centroids, 1, cloud.counts, 4, 0);
  EXPECT_FALSE(table.within_caps);
  for (const std::uint64_t load : table.load) EXPECT_GT(load, 0U);
  EXPECT_DOUBLE_EQ(table.ratio(), 1000);
}

}  // namespace
}  // namespace skerry::diffusion
