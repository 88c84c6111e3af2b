// SPDX-License-Identifier: Apache-2.0
// The real hosts under faults: some seeds are sound, and the same seed gives
// the same story.
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/text.h"
#include "tests/simulation/real_cluster.h"

namespace skerry::simulation {
namespace {

// What the parts under test would tell a person is expected here.
[[maybe_unused]] const bool kQuiet = [] {
  init_log("real_cluster_test", LogLevel::kError);
  return true;
}();

TEST(RealHosts, AreSoundUnderFaults) {
  std::uint64_t commits = 0;
  for (std::uint64_t seed = 1; seed <= 40 / SKERRY_SEED_DIVISOR; ++seed) {
    const Report report = simulate_hosts(seed);
    commits += report.commits;
    for (const Violation& violation : report.violations)
      ADD_FAILURE() << "seed " << seed << ": " << violation.id << ": " << violation.what
                    << "; again: skerry-simulate --hosts --seed " << seed;
  }
  EXPECT_GT(commits, 100U);
}

TEST(RealHosts, S17TheSameSeedGivesTheSameStory) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Report first = simulate_hosts(seed);
    const Report second = simulate_hosts(seed);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
  }
}

}  // namespace
}  // namespace skerry::simulation
