// SPDX-License-Identifier: Apache-2.0
#include "gossip/table.h"

#include <gtest/gtest.h>

#include "gossip/testing/testing.h"

namespace skerry::gossip {
namespace {

const Author kCoordinator(0);
const Author kAnna(1);
const Author kBert(2);

struct TableTest : testing::Test {
  Verdict put(const pb::SignedRecord& wire, Now now, Duration age = {}) {
    return table.put(genuine(verifier, wire, now), age, now).verdict;
  }
  const Entry* node(const Author& author, Now now) { return table.find_node(author.id(), now); }
  void use(Limits limits) { table = Table(kCoordinator.id(), limits); }

  Verifier verifier{kCoordinator.identity.ed25519_key()};
  Table table{kCoordinator.id()};
};

TEST_F(TableTest, TheHigherVersionStays) {
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:1"), 5), at(0s)), Verdict::kNew);
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:1"), 5), at(1s)), Verdict::kHeld);
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:2"), 4), at(10s)), Verdict::kOlder);
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:3"), 6), at(10s)), Verdict::kNewer);
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:4"), 99, at({}), 24h, 0), at(20s)), Verdict::kOlder)
      << "an old incarnation, however far it counted";
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:5"), 1, at({}), 24h, 2), at(20s)), Verdict::kNewer);
  EXPECT_EQ(node(kAnna, at(20s))->record->body.node().address(), "tcp://h:5");
  EXPECT_EQ(table.size(), 1U);
}

TEST_F(TableTest, OfOneVersionTheGreaterHashStaysWhateverCameFirst) {
  const pb::SignedRecord one = kAnna.sign(node_fact("tcp://h:1"), 5);
  const pb::SignedRecord two = kAnna.sign(node_fact("tcp://h:2"), 5);
  Table other(kCoordinator.id());
  put(one, at(0s));
  EXPECT_TRUE(table.contradicts(*genuine(verifier, two)));
  put(two, at(10s));
  other.put(genuine(verifier, two), {}, at(0s));
  other.put(genuine(verifier, one), {}, at(10s));
  EXPECT_EQ(node(kAnna, at(10s))->record->version,
            other.find_node(kAnna.id(), at(10s))->record->version);
  EXPECT_EQ(table.fingerprints(), other.fingerprints());
}

TEST_F(TableTest, AnAuthorWhoChangesItsMindTooOftenWaits) {
  put(kAnna.sign(node_fact("tcp://h:1"), 1), at(0s));
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:2"), 2), at(4s)), Verdict::kTooSoon);
  EXPECT_EQ(put(kAnna.sign(node_fact("tcp://h:3"), 3), at(5s)), Verdict::kNewer);
  put(kCoordinator.sign(run_fact("r-1", 2), 1), at(0s));
  EXPECT_EQ(put(kCoordinator.sign(run_fact("r-1", 3), 2), at(1s)), Verdict::kNewer);
}

TEST_F(TableTest, WhatWasLoadedFromADiskMayChangeAtOnce) {
  put(kAnna.sign(node_fact("tcp://h:1"), 1), at(100s));
  Table loaded = load_table(save_table(table, at(200s)), verifier, {}, at(200s));
  EXPECT_EQ(
      loaded.put(genuine(verifier, kAnna.sign(node_fact("tcp://h:2"), 2)), {}, at(201s)).verdict,
      Verdict::kNewer);
}

TEST_F(TableTest, DiesWithItsLifetimeAndNeverComesBack) {
  const pb::SignedRecord wire = kAnna.sign(node_fact(""), 5, at({}), 1h);
  put(wire, at(0s));
  EXPECT_NE(node(kAnna, at(59min)), nullptr);
  EXPECT_EQ(node(kAnna, at(1h)), nullptr) << "before anything swept it";
  EXPECT_EQ(put(wire, at(1h)), Verdict::kHeld) << "not anew, though nobody hands it out";
  table.expire(at(1h));
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.fingerprints(), Table(kCoordinator.id()).fingerprints());
  EXPECT_EQ(put(kAnna.sign(node_fact(""), 4, at(8h)), at(8h)), Verdict::kDead)
      << "of an older version";
  for (const Duration later : {1h, 2h, 5h, 9h, 100h}) {
    EXPECT_EQ(put(wire, at(later)), Verdict::kDead) << later.count();
    table.expire(at(later));
  }
  EXPECT_EQ(put(kAnna.sign(node_fact(""), 6, at(200h)), at(200h)), Verdict::kNew);
}

TEST_F(TableTest, AgesAddUpFromHolderToHolder) {
  const pb::SignedRecord wire = kAnna.sign(node_fact(""), 5, at({}), 3h);
  put(wire, at(1h), 1h);
  const Duration age = Table::age(*node(kAnna, at(2h)), at(2h));
  EXPECT_GE(age, 2h);
  EXPECT_LE(age, 2h + 1s);
  EXPECT_EQ(node(kAnna, at(3h)), nullptr);
}

// The receiver's and the author's clocks are each an hour off, either way: ages
// count, dates do not.
TEST_F(TableTest, AClockAnHourOffNeitherLosesNorKeeps) {
  for (const Duration author : {-1h, 0h, 1h}) {
    for (const Duration receiver : {-1h, 0h, 1h}) {
      table = Table(kCoordinator.id());
      const pb::SignedRecord wire = kAnna.sign(node_fact(""), 5, at(0s, author), 1h);
      EXPECT_EQ(put(wire, at(50min, receiver), 50min), Verdict::kNew);
      EXPECT_NE(node(kAnna, at(59min, receiver)), nullptr);
      EXPECT_EQ(node(kAnna, at(60min, receiver)), nullptr);
      table = Table(kCoordinator.id());
      EXPECT_EQ(put(wire, at(60min, receiver), 60min), Verdict::kDead);
    }
  }
}

TEST_F(TableTest, ALiarMovesADeathByTwoHoursNoFurther) {
  const pb::SignedRecord wire = kAnna.sign(node_fact(""), 5, at({}), 24h);
  EXPECT_EQ(put(wire, at(26h), 0h), Verdict::kDead) << "as if fresh";
  EXPECT_EQ(put(wire, at(1h), 100h), Verdict::kNew) << "as if long over";
  EXPECT_NE(node(kAnna, at(1h + 20h)), nullptr);
  EXPECT_EQ(node(kAnna, at(1h + 21h)), nullptr);
}

TEST_F(TableTest, DatesThousandsOfYearsAwayAreOnlyOld) {
  pb::RecordBody body = node_fact("");
  for (const std::int64_t issued : {-(std::int64_t{1} << 50), std::int64_t{1} << 50}) {
    Now then = at({});
    then.unix_ms = issued;
    const Verdict verdict = put(kAnna.sign(body, 5, then), at(0s));
    EXPECT_EQ(verdict, issued < 0 ? Verdict::kDead : Verdict::kNew);
  }
}

TEST_F(TableTest, DiesWithTheCertificate) {
  Author anna(1);
  anna.certificate = certificate_of(anna.identity, at(1h).unix_ms);
  put(anna.sign(node_fact(""), 1), at(0s));
  EXPECT_NE(node(anna, at(3h - 1s)), nullptr);
  EXPECT_EQ(node(anna, at(3h)), nullptr);
}

TEST_F(TableTest, ARevokedNodesRecordsGoAndStayAway) {
  put(kCoordinator.sign(run_fact("r-1", 4), 1), at(0s));
  put(kAnna.sign(node_fact(""), 1), at(0s));
  put(kAnna.sign(expert_fact("r-1", 1, 10, "a"), 1), at(0s));
  put(kBert.sign(node_fact(""), 1), at(0s));
  EXPECT_EQ(put(kCoordinator.sign(revocation_fact(kAnna.id()), 1, at({}), 24h * 3650), at(1s)),
            Verdict::kNew);
  EXPECT_TRUE(table.is_revoked(kAnna.id(), at(1s)));
  EXPECT_EQ(table.size(), 3U) << "the run, the revocation and Bert";
  EXPECT_EQ(put(kAnna.sign(node_fact(""), 2), at(60s)), Verdict::kRevoked);
  EXPECT_EQ(put(kCoordinator.sign(withdrawn(revocation_fact(kAnna.id())), 2), at(70s)),
            Verdict::kNewer);
  EXPECT_EQ(put(kAnna.sign(node_fact(""), 3), at(80s)), Verdict::kNew);
}

TEST_F(TableTest, AnExpertIsOfARunThatTheCoordinatorTellsOf) {
  const pb::SignedRecord expert = kAnna.sign(expert_fact("r-1", 3, 10, "a"), 1);
  EXPECT_EQ(put(expert, at(0s)), Verdict::kNoRun);
  put(kCoordinator.sign(run_fact("r-1", 3), 1), at(0s));
  EXPECT_EQ(put(expert, at(0s)), Verdict::kNoRun) << "experts 0 to 2";
  put(kCoordinator.sign(run_fact("r-1", 4), 2), at(0s));
  EXPECT_EQ(put(expert, at(0s)), Verdict::kNew);
  put(kCoordinator.sign(withdrawn(run_fact("r-1", 4)), 3), at(1s));
  EXPECT_EQ(table.size(), 1U) << "the run is over, its experts are gone";
}

TEST_F(TableTest, AnAuthorHasItsNumberOfRecordsTheSameEverywhere) {
  use({.author_records = 8});
  Table other(kCoordinator.id(), {.author_records = 8});
  const RecordPtr run = genuine(verifier, kCoordinator.sign(run_fact("r-1", 40), 1));
  table.put(run, {}, at(0s));
  other.put(run, {}, at(0s));
  for (ExpertIndex i = 0; i < 40; ++i) put(kAnna.sign(expert_fact("r-1", i, 10, "a"), 1), at(0s));
  for (ExpertIndex i = 40; i-- > 0;) {
    other.put(genuine(verifier, kAnna.sign(expert_fact("r-1", i, 10, "a"), 1)), {}, at(0s));
  }
  EXPECT_EQ(table.size(), 9U);
  EXPECT_EQ(table.fingerprints(), other.fingerprints());
  put(kAnna.sign(node_fact(""), 1), at(0s));
  EXPECT_NE(node(kAnna, at(0s)), nullptr) << "matters more than what it says of experts";
}

TEST_F(TableTest, FullTheLeastImportantGoesAndNoOldVersionComesBack) {
  use({.records = 6});
  put(kCoordinator.sign(run_fact("r-1", 4), 1), at(0s));
  for (std::uint64_t i = 1; i <= 4; ++i) {
    put(Author(i).sign(expert_fact("r-1", 0, 10, "a"), 5), at(0s));
  }
  for (std::uint64_t i = 1; i <= 9; ++i) put(Author(i).sign(node_fact(""), 5), at(0s));
  EXPECT_EQ(table.size(), 6U);
  EXPECT_NE(table.find_run(RunId("r-1"), at(0s)), nullptr);
  std::size_t nodes = 0;
  for (std::uint64_t i = 1; i <= 9; ++i)
    nodes += table.find_node(Author(i).id(), at(0s)) != nullptr ? 1 : 0;
  EXPECT_EQ(nodes, 5U) << "no expert among them";
  EXPECT_EQ(put(kCoordinator.sign(revocation_fact(Author(10).id()), 1), at(0s)), Verdict::kNew);
  // A place becomes free; what left may come back, but nothing older.
  EXPECT_EQ(put(kCoordinator.sign(revocation_fact(table.pick(3)->record->key.author), 1), at(0s)),
            Verdict::kNew);
  EXPECT_EQ(table.size(), 6U);
}

TEST_F(TableTest, WhatLeftForWantOfRoomMayReturnNothingOlderMay) {
  use({.records = 2});
  put(kAnna.sign(node_fact(""), 5), at(0s));
  put(kCoordinator.sign(run_fact("r-1", 4), 1), at(0s));
  put(kCoordinator.sign(run_fact("r-2", 4), 1), at(0s));
  EXPECT_EQ(node(kAnna, at(0s)), nullptr);
  use({.records = 3});
  table = Table(kCoordinator.id(), {.records = 2});
  put(kAnna.sign(node_fact(""), 5), at(0s));
  put(kCoordinator.sign(run_fact("r-1", 4), 1, at({}), 2h), at(0s));
  put(kCoordinator.sign(run_fact("r-2", 4), 1, at({}), 2h), at(0s));
  table.expire(at(2h));
  EXPECT_EQ(put(kAnna.sign(node_fact(""), 4), at(2h), 2h), Verdict::kDead);
  EXPECT_EQ(put(kAnna.sign(node_fact(""), 5), at(2h), 2h), Verdict::kNew);
}

TEST_F(TableTest, BytesAreBounded) {
  const std::size_t one = genuine(verifier, kAnna.sign(node_fact(""), 1))->bytes;
  use({.bytes = 3 * one + one / 2});
  for (std::uint64_t i = 1; i <= 9; ++i) {
    put(Author(i).sign(node_fact(""), 1), at(0s));
    EXPECT_LE(table.bytes(), table.limits().bytes);
  }
  EXPECT_EQ(table.size(), 3U);
}

TEST_F(TableTest, TheDeadAreRememberedInBoundedNumber) {
  use({.remembered_dead = 4});
  for (std::uint64_t i = 1; i <= 9; ++i)
    put(Author(i).sign(node_fact(""), 1, at({}), 1min), at(0s));
  table.expire(at(1h));
  EXPECT_EQ(table.remembered_dead(), 4U);
  table.expire(at(10h));
  EXPECT_EQ(table.remembered_dead(), 0U);
}

TEST_F(TableTest, ComparesHeads) {
  put(kAnna.sign(node_fact("tcp://h:1"), 5), at(0s));
  const Record& held = *node(kAnna, at(0s))->record;
  const Head same{held.position, 1, 5, held.version.stamp()};
  const auto standing = [&](Head head, Now now) {
    const Table::Standing s = table.compare(head, now);
    return std::pair(s.lacking, s.behind);
  };
  const Now later = at(10s);
  EXPECT_EQ(standing(same, later), std::pair(false, false));
  EXPECT_EQ(standing({held.position, 1, 6, 0}, later), std::pair(true, false));
  EXPECT_EQ(standing({held.position, 1, 6, 0}, at(1s)), std::pair(false, false))
      << "too soon to be taken";
  EXPECT_EQ(standing({held.position, 1, 4, 0}, later), std::pair(false, true));
  EXPECT_EQ(standing({held.position + 1, 1, 4, 0}, later), std::pair(true, false));
  table.expire(at(24h));
  EXPECT_EQ(standing(same, at(24h)), std::pair(false, false)) << "dead here";
  EXPECT_EQ(standing({held.position, 1, 6, 0}, at(24h)), std::pair(true, false));
}

TEST_F(TableTest, OutlivesItsProcess) {
  put(kCoordinator.sign(run_fact("r-1", 32), 1, at({}), 24h * 30), at(0s));
  put(kAnna.sign(node_fact(""), 5), at(0s));
  put(kAnna.sign(expert_fact("r-1", 1, 10, "a"), 1), at(0s));
  for (ExpertIndex k = 0; k < 32; ++k) {  // of which some stand before their run
    put(kCoordinator.sign(expert_fact("r-1", k, 10, "a"), 1), at(0s));
  }
  const std::string saved = save_table(table, at(1h));
  Verifier fresh(kCoordinator.identity.ed25519_key());
  const Now later{.boot = 5s, .unix_ms = at(3h).unix_ms};  // the machine started anew
  const Table loaded = load_table(saved, fresh, {}, later);
  EXPECT_EQ(loaded.fingerprints(), table.fingerprints());
  EXPECT_GE(Table::age(*loaded.find_node(kAnna.id(), later), later), 3h);
  EXPECT_EQ(load_table("garbage", fresh, {}, later).size(), 0U);
}

}  // namespace
}  // namespace skerry::gossip
