// SPDX-License-Identifier: Apache-2.0
#include "gossip/router_parts.h"

#include <gmock/gmock.h>

#include "gossip/testing/testing.h"

namespace skerry::gossip {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Author kCoordinator(0);
const RunId kRun("r-1");

struct RouterPartsTest : testing::Test {
  void tell(const Author& author, const pb::RecordBody& fact) {
    now = at(++counter * 10s);
    const auto verdict = table.put(genuine(verifier, author.sign(fact, counter)), {}, now).verdict;
    ASSERT_TRUE(is_held(verdict)) << static_cast<int>(verdict);
  }
  RouterParts parts() { return value_of(router_parts(table, kRun, now)); }

  Verifier verifier{kCoordinator.identity.ed25519_key()};
  Table table{kCoordinator.id()};
  std::uint64_t counter = 0;
  Now now = at({});
};

TEST_F(RouterPartsTest, TellsHonestlyWhatIsMissing) {
  EXPECT_EQ(router_parts(table, kRun, now).error().code, ErrorCode::kNotFound);
  tell(kCoordinator, run_fact("r-1", 3));
  EXPECT_THAT(parts().missing,
              ElementsAre(HasSubstr("specification: no node"), HasSubstr("router: no node"),
                          "expert 0: no record tells of a checkpoint",
                          "expert 1: no record tells of a checkpoint",
                          "expert 2: no record tells of a checkpoint"));
  tell(Author(1), expert_fact("r-1", 0, 100, "zero"));
  tell(Author(1), node_fact("tcp://one:1", {"spec", "router", "statistics 0"}));
  EXPECT_THAT(parts().missing,
              ElementsAre(HasSubstr("expert 0: no node says that it holds its checkpoint"),
                          "expert 1: no record tells of a checkpoint",
                          "expert 2: no record tells of a checkpoint"));
}

TEST_F(RouterPartsTest, NamesEveryPartAndItsHolders) {
  tell(kCoordinator, run_fact("r-1", 2));
  for (ExpertIndex i = 0; i < 2; ++i) {
    tell(Author(1 + i), expert_fact("r-1", i, 100 + i, text("checkpoint ", i)));
    tell(Author(1 + i), node_fact(text("tcp://node:", i), {"spec", "router", text("checkpoint ", i),
                                                           text("statistics ", i)}));
  }
  tell(Author(3), node_fact("", {"checkpoint 1"}));
  const RouterParts found = parts();
  EXPECT_THAT(found.missing, IsEmpty());
  ASSERT_EQ(found.experts.size(), 2U);
  EXPECT_EQ(found.experts[1].best.step(), 101U);
  EXPECT_EQ(found.experts[1].best.checkpoint().manifest(), hash_of("checkpoint 1"));
  ASSERT_EQ(found.experts[1].holders.size(), 2U);
  EXPECT_EQ(found.experts[1].statistics->object.manifest(), hash_of("statistics 1"));
  EXPECT_EQ(found.router->holders.size(), 2U);
  EXPECT_EQ(known_runs(table, now).size(), 1U);
}

TEST_F(RouterPartsTest, AnExpertThatLeftIsNotMissed) {
  pb::RecordBody run = run_fact("r-1", 3);
  run.mutable_run()->add_without(0);
  run.mutable_run()->add_without(2);
  tell(kCoordinator, run);
  tell(Author(1), expert_fact("r-1", 0, 100, "zero"));
  tell(Author(1), expert_fact("r-1", 1, 100, "one"));
  tell(Author(1), node_fact("tcp://one:1", {"spec", "router", "one", "statistics 1"}));
  EXPECT_THAT(parts().missing, IsEmpty());
  ASSERT_EQ(parts().experts.size(), 1U);
  EXPECT_EQ(parts().experts[0].index, 1U);
}

// It is a job of the run and no expert: what is known of it stands apart, and
// its loss stops nobody.
TEST_F(RouterPartsTest, ALearnedRouterIsNamedBesideTheExperts) {
  pb::RecordBody run = run_fact("r-1", 2);
  run.mutable_run()->add_without(1);
  run.mutable_run()->set_trains_router(true);
  tell(kCoordinator, run);
  tell(Author(1), node_fact("tcp://one:1", {"spec", "router", "zero", "statistics 0"}));
  tell(kCoordinator, expert_fact("r-1", 0, 100, "zero"));
  EXPECT_THAT(parts().missing, IsEmpty());
  EXPECT_EQ(parts().learned_router_missing, "learned router: no record tells of a checkpoint");
  tell(kCoordinator, expert_fact("r-1", 1, 90, "weights"));
  EXPECT_THAT(parts().learned_router_missing,
              HasSubstr("no node says that it holds its checkpoint"));
  tell(Author(2), node_fact("tcp://two:1", {"weights"}));
  const RouterParts found = parts();
  EXPECT_EQ(found.learned_router_missing, "");
  ASSERT_TRUE(found.learned_router);
  EXPECT_EQ(found.learned_router->best.checkpoint().manifest(), hash_of("weights"));
  EXPECT_EQ(found.learned_router->age, 10s) << "it was told just before the last";
  EXPECT_EQ(found.experts.size(), 1U);
  EXPECT_THAT(found.missing, IsEmpty());
}

TEST_F(RouterPartsTest, TheBestIsAcknowledgedThenOfTheLatestEpochThenTheFurthest) {
  const auto best = [&] { return parts().experts.at(0).best.checkpoint().manifest(); };
  tell(kCoordinator, run_fact("r-1", 1));
  tell(Author(1), node_fact("tcp://one:1", {"a", "b", "c", "d", "spec", "router", "statistics 0"}));
  tell(Author(1), expert_fact("r-1", 0, 100, "a", 2));
  EXPECT_EQ(best(), hash_of("a"));
  tell(Author(2), expert_fact("r-1", 0, 900, "b", 1));
  EXPECT_EQ(best(), hash_of("a")) << "of a later epoch";
  tell(Author(3), expert_fact("r-1", 0, 200, "c", 2));
  EXPECT_EQ(best(), hash_of("c")) << "further";
  tell(Author(4), expert_fact("r-1", 0, 1'000'000, "nobody has it", 99));
  EXPECT_EQ(best(), hash_of("c")) << "somebody holds it";
  tell(kCoordinator, expert_fact("r-1", 0, 150, "d", 2));
  EXPECT_EQ(best(), hash_of("d")) << "acknowledged";
  EXPECT_TRUE(parts().experts[0].acknowledged);
  tell(kCoordinator, expert_fact("r-1", 0, 160, "lost", 2));
  EXPECT_EQ(best(), hash_of("c")) << "what was acknowledged is lost";
  EXPECT_THAT(parts().missing, IsEmpty());
}

// What is fetched without the coordinator must be held by somebody; what an
// adoption goes on from need not be, yet.
TEST_F(RouterPartsTest, HeadsForAnAdoptionAreInOrderOfTrustWhoeverHoldsThem) {
  tell(kCoordinator, run_fact("r-1", 2));
  tell(Author(1), node_fact("tcp://one:1", {"old", "spec", "router", "statistics 0"}));
  tell(Author(1), expert_fact("r-1", 0, 100, "old", 2));
  tell(Author(2), expert_fact("r-1", 0, 900, "of an old epoch", 1));
  tell(Author(3), expert_fact("r-1", 0, 510, "later", 2));
  tell(Author(4), expert_fact("r-1", 0, 500, "acknowledged", 3));
  tell(kCoordinator, expert_fact("r-1", 0, 500, "acknowledged", 2));
  tell(Author(4), expert_fact("r-1", 1, 20, "another's", 2));
  std::vector<std::string> found;
  for (const ExpertHead& each : expert_heads(table, kRun, now)) {
    found.push_back(
        text(each.record.expert(), "@", each.record.step(), each.acknowledged ? "!" : ""));
  }
  EXPECT_THAT(found, ElementsAre("0@500!", "0@510", "0@100", "0@900", "1@20"));
  EXPECT_EQ(parts().experts[0].best.checkpoint().manifest(), hash_of("old"))
      << "an ensemble is made of it";
}

}  // namespace
}  // namespace skerry::gossip
