// SPDX-License-Identifier: Apache-2.0
// S3: epochs over restarts and restores.
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::expert;
using testing::Harness;
using testing::held_by;
using testing::Who;

TEST(Epoch, EpochsOnlyGrowOverRestartsAndRestores) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const auto backup = harness.disk;
  Epoch last = expert(harness).epoch;
  for (int i = 0; i < 3; ++i) {
    ++node.incarnation;  // the daemon starts again: another epoch
    harness.reconnect(node);
    EXPECT_GT(expert(harness).epoch, last);
    last = expert(harness).epoch;
    harness.restart();
    EXPECT_EQ(expert(harness).epoch, last);
    harness.reconnect(node);
  }
  const pb::Commit stale = testing::next_commit(harness.assignment(node).slots(0));
  harness.restore(backup);
  harness.reconnect(node);
  EXPECT_GT(expert(harness).epoch, last);  // though the backup knew only of the first
  EXPECT_EQ(harness.commit(node, stale).status(), pb::COMMIT_FENCED);
}

TEST(Epoch, TwoRestoresOfOneBackupShareNoEpoch) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const auto backup = harness.disk;
  harness.restore(backup);
  harness.reconnect(node);
  const pb::Commit of_first = testing::next_commit(harness.assignment(node).slots(0));
  for (int i = 0; i < 100; ++i) {  // many more grants than the second will make
    ++node.incarnation;
    harness.reconnect(node);
  }
  const Epoch last = expert(harness).epoch;
  EXPECT_EQ(last.generation(), 2);

  harness.now.unix_ms += 1000;
  harness.restore(backup);
  harness.reconnect(node);
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_GT(expert(harness).epoch, last);
  EXPECT_EQ(harness.commit(node, of_first).status(), pb::COMMIT_FENCED);
}

TEST(Epoch, ANodeThatHasSeenALaterGenerationTakesTheCoordinatorBeyondIt) {
  Harness harness;
  Who node = harness.join("n1");
  Who other = harness.join("n2");
  harness.create_run("fashion", 1);
  const auto old_backup = harness.disk;
  harness.restore(old_backup);
  harness.restore(std::map(harness.disk));
  node.generation = harness.hello(node).hello().generation();
  ASSERT_EQ(node.generation, 3U);
  const Epoch last = expert(harness).epoch;

  harness.restore(old_backup);
  harness.reconnect(other);
  const pb::Commit of_old = testing::next_commit(harness.assignment(other).slots(0));
  ASSERT_TRUE(held_by(harness, other));
  ASSERT_LT(expert(harness).epoch, last);  // of generation 2, that is
  harness.disk_stalls = true;
  node.connection = "";
  harness.send_hello(node);
  EXPECT_TRUE(harness.inbox(node).empty()) << "the generation is durable before it is told";
  harness.disk_stalls = false;
  harness.persist();
  ASSERT_EQ(harness.inbox(node).size(), 1U);
  EXPECT_EQ(harness.inbox(node)[0].hello().generation(), 4U);
  EXPECT_GT(expert(harness).epoch, last);
  EXPECT_EQ(harness.commit(other, of_old).status(), pb::COMMIT_FENCED);
  EXPECT_EQ(harness.events("generation_raised").size(), 1U);
  harness.restart();
  EXPECT_EQ(harness.hello(node).hello().generation(), 4U);
}

TEST(Epoch, NoNodeCanUseTheGenerationsUp) {
  Harness harness;
  Who node = harness.join("n1");
  for (const std::uint64_t claimed : {99U, 100U, 101U, 0xffffU}) {
    node.generation = claimed;
    harness.reconnect(node);
  }
  EXPECT_EQ(harness.hello(node).hello().generation(), 100U);
}

}  // namespace
}  // namespace skerry::coordinator
