// SPDX-License-Identifier: Apache-2.0
// Leases of several slots: one engine trains on the cards of all of them.
#include <gmock/gmock.h>

#include "daemon/core/cards.h"
#include "daemon/core/work.h"
#include "daemon/testing/core_harness.h"

namespace skerry::daemon {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
constexpr auto kIsReport = &pb::ControlRequest::has_engine_report;
constexpr auto kIsReturn = &pb::ControlRequest::has_return_lease;
constexpr auto kIsCommit = &pb::ControlRequest::has_commit;

class SeveralCards : public ::testing::Test {
 protected:
  SeveralCards() : node({}, 4) {}

  // The same lease, with these slots besides.
  pb::SlotAssignment with(const SlotIndices& more, std::uint64_t epoch = 1) {
    pb::SlotAssignment lease = node.grant(epoch);
    lease.mutable_more_slots()->Assign(more.begin(), more.end());
    lease.mutable_spec()->mutable_train()->set_batch_size(12);
    return lease;
  }
  void train(const SlotIndices& more) {
    node.connect();
    node.assign({with(more)});
    node.stored("shard");
    node.take_engine();
    node.ready();
    node.answer_heartbeat();
  }
  // What the engine is told to do, if anything.
  std::optional<StopKind> stop() const {
    return node.last.stops.empty() ? std::nullopt : std::optional(node.last.stops.back().kind);
  }
  // A snapshot at its end, as it was told.
  void leave(Step from, Step to) {
    node.round(from, to);
    node.finish_engine(to);
  }
  void lose_card() {
    EngineFailed event{.engine = node.engine};
    event.failed.set_failure(pb::EngineEvent::FAILURE_CARD);
    event.failed.set_reason("CUDA error: off the bus");
    node.step(event);
    node.exit_engine("signal 9");
  }
  pb::SlotStatus status(int slot) {
    node.pass(seconds(1));
    return node.last_sent(&pb::ControlRequest::has_heartbeat).heartbeat().slots(slot);
  }

  Harness node;
};

TEST_F(SeveralCards, AnEngineHasThoseOfItsLease) {
  train({1});
  EXPECT_THAT(node.starts.back().cards, ElementsAre(0, 1));
  EXPECT_EQ(node.starts.back().start.cards(), 2U);
  node.round(0, 10);
  EXPECT_EQ(node.last_sent(kIsCommit).commit().metrics().cards(), 2U);
}

TEST_F(SeveralCards, OneCardIsToldAsBefore) {
  train({});
  EXPECT_EQ(node.starts.back().start.cards(), 0U);
  node.round(0, 10);
  EXPECT_EQ(node.last_sent(kIsCommit).commit().metrics().cards(), 0U);
}

// The lease goes on at its epoch, and no step is lost.
TEST_F(SeveralCards, MoreOfThemRestartItsEngineFromASnapshot) {
  train({});
  node.progress(7);
  node.assign({with({1})});
  ASSERT_EQ(stop(), StopKind::kSnapshotNow);
  leave(0, 7);
  ASSERT_TRUE(node.started());
  EXPECT_THAT(node.starts.back().cards, ElementsAre(0, 1));
  EXPECT_EQ(node.starts.back().resume.manifest(), object("checkpoint 7").manifest());
  EXPECT_EQ(node.view().epoch, Epoch(1, 1));
}

TEST_F(SeveralCards, FewerRestartItToo) {
  train({1});
  node.progress(7);
  node.assign({with({})});
  ASSERT_EQ(stop(), StopKind::kSnapshotNow);
  leave(0, 7);
  ASSERT_TRUE(node.started());
  EXPECT_THAT(node.starts.back().cards, ElementsAre(0));
  EXPECT_EQ(node.starts.back().resume.manifest(), object("checkpoint 7").manifest());
}

TEST_F(SeveralCards, TheSameOnesRestartNothing) {
  train({1});
  pb::SlotAssignment later = with({1});
  later.set_steps_target(1000);
  later.set_yield_after_commit(false);
  node.assign({later});
  EXPECT_EQ(stop(), std::nullopt);
}

// Its card is another's in the same word: it waits until that engine has ended.
TEST_F(SeveralCards, ACardThatIsGivenUpIsWaitedFor) {
  train({1});
  node.progress(7);
  const std::uint64_t wide = node.engine;
  pb::SlotAssignment other = node.grant(1, 1, 4);
  node.assign({with({}), other});
  node.pass(seconds(2));
  ASSERT_EQ(node.starts.size(), 1U) << "the first engine still has the card";
  leave(0, 7);
  ASSERT_EQ(node.starts.size(), 3U);
  EXPECT_THAT(node.starts[1].cards, ElementsAre(0));
  EXPECT_THAT(node.starts[2].cards, ElementsAre(1));
  EXPECT_NE(node.starts[1].engine, wide);
}

// A slot that is still left by another engine does not keep this one idle.
TEST_F(SeveralCards, ACardThatComesFreeLaterIsWaitedForWhileItTrains) {
  node.connect();
  node.assign({with({}), node.grant(1, 1, 4)});
  node.stored("shard");
  ASSERT_EQ(node.starts.size(), 2U);
  for (const StartEngine& each : node.starts) {
    node.engine = each.engine;
    node.ready(0, each.slot);
  }
  node.engine = node.starts[0].engine;
  node.answer_heartbeat();
  node.assign({with({1})});
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].slot, 1U) << "the other's, whose work is gone";
  node.step(EngineExited{.slot = 1, .engine = node.starts[1].engine, .how = "signal 9"});
  EXPECT_EQ(stop(), StopKind::kSnapshotNow);
}

// Slots 1 and 2 of three: CUDA is asked which are left.
TEST_F(SeveralCards, ALostOneIsCountedOutAndTheOthersGoOn) {
  train({1, 2});
  node.round(0, 10);
  lose_card();
  const auto report = node.last_sent(kIsReport).engine_report();
  EXPECT_TRUE(report.card_fault());
  EXPECT_FALSE(report.gives_up());
  EXPECT_THAT(report.reason(), HasSubstr("one of the slots 0, 1, 2: CUDA error: off the bus"));
  node.live(seconds(5));
  ASSERT_EQ(node.starts.size(), 1U) << "nothing is counted yet";
  node.step(CardsCounted{{1}});
  ASSERT_TRUE(node.started());
  EXPECT_THAT(node.starts.back().cards, ElementsAre(0, 2));
  EXPECT_EQ(node.starts.back().resume.manifest(), object("checkpoint 10").manifest());
  EXPECT_EQ(status(1).phase(), pb::SLOT_FAILED);
  EXPECT_EQ(status(3).phase(), pb::SLOT_IDLE);
}

TEST_F(SeveralCards, ItsOwnMayBeTheLostOne) {
  train({1});
  lose_card();
  node.step(CardsCounted{{0}});
  node.live(seconds(5));
  ASSERT_TRUE(node.started());
  EXPECT_THAT(node.starts.back().cards, ElementsAre(1));
}

TEST_F(SeveralCards, WithoutALostOneAllGoOn) {
  train({1});
  lose_card();
  EXPECT_TRUE(node.last.count_cards);
  node.step(CardsCounted{});
  node.live(seconds(5));
  ASSERT_TRUE(node.started());
  EXPECT_THAT(node.starts.back().cards, ElementsAre(0, 1));
}

TEST_F(SeveralCards, ASlotWhoseCardIsLostGivesItsLeaseBack) {
  train({1});
  lose_card();
  node.step(CardsCounted{{1}});
  node.live(seconds(5));
  node.sent.clear();
  node.assign({with({}), node.grant(1, 1, 4)});
  const auto report = node.last_sent(kIsReport).engine_report();
  EXPECT_THAT(report.reason(), HasSubstr("slot 1: it is lost"));
  EXPECT_TRUE(report.gives_up());
  EXPECT_TRUE(node.has_sent(kIsReturn));
}

// Twelve rows are not shared by five cards.
TEST_F(SeveralCards, ShareTheBatchEvenly) {
  Harness six({}, 6);
  six.connect();
  six.assign({with({1, 2, 3, 4})});
  six.stored("shard");
  EXPECT_THAT(six.starts.back().cards, ElementsAre(0, 1, 2, 3));
}

TEST_F(SeveralCards, SlotsThatAreNotHereAreLeftOut) {
  train({9});
  EXPECT_THAT(node.starts.back().cards, ElementsAre(0));
}

// Nobody may take it for the time of either number.
TEST_F(SeveralCards, ASpanOfSeveralNumbersMeasuresNothing) {
  Work work;
  Checkpoint one, two;
  one.metrics.set_train_seconds(3);
  two.metrics.set_train_seconds(4);
  two.metrics.set_cards(2);
  work.add(one);
  EXPECT_EQ(work.latest->metrics.train_seconds(), 3);
  work.add(two);
  EXPECT_EQ(work.latest->metrics.train_seconds(), 0);
}

}  // namespace
}  // namespace skerry::daemon
