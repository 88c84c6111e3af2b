// SPDX-License-Identifier: Apache-2.0
#include "gossip/gossip.h"

#include <gmock/gmock.h>

#include <set>

#include "gossip/testing/testing.h"

namespace skerry::gossip {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const Author kCoordinator(0);
const Author kAnna(1);
const Author kBert(2);
const Author kCarl(3);

// One core, its peers played by the test.
struct GossipTest : testing::Test {
  GossipTest() { start(kAnna, {}); }

  void start(const Author& who, Table table, Config config = {}) {
    config.coordinator_key = kCoordinator.identity.ed25519_key();
    config.certificate = who.certificate;
    if (config.incarnation == 0) config.incarnation = 10;
    core.emplace(config, who.identity, verifier, std::move(table), now);
  }
  void start(const Author& who, std::nullptr_t) { start(who, Table(kCoordinator.id())); }
  void start(const Author& who, std::initializer_list<int>) {
    start(who, Table(kCoordinator.id()));
  }

  Effects pass(Duration time) {
    now = at(now.boot + time);
    core->tick(now);
    return core->take_effects();
  }
  Effects hear(const Author& peer, const pb::GossipMessage& message) {
    const auto parsed = protocol::parse_gossip_message(message.SerializeAsString());
    EXPECT_TRUE(parsed) << parsed.error().message;
    core->received(peer.id(), *parsed, now);
    return core->take_effects();
  }
  Effects hear(const Author& peer, const pb::SignedRecord& record) {
    pb::GossipMessage message;
    *message.add_records() = record;
    return hear(peer, message);
  }
  const pb::RecordBody* node(const Author& author) {
    const Entry* entry = core->table().find_node(author.id(), now);
    return entry == nullptr ? nullptr : &entry->record->body;
  }
  pb::HeadList heads(const pb::SignedRecord& wire) {
    pb::HeadList list;
    add_head(list, value_of(open_record(wire, kCoordinator.id())));
    return list;
  }

  Now now = at(1s);
  Verifier verifier{kCoordinator.identity.ed25519_key()};
  std::optional<Gossip> core;
};

TEST_F(GossipTest, SaysWhatItIsToldAndOffersIt) {
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  core->connected(kBert.id(), true, now);
  const Effects effects = pass(10s);
  ASSERT_THAT(effects.news, SizeIs(1));
  ASSERT_THAT(effects.sends, SizeIs(1));
  EXPECT_EQ(effects.sends[0].peer, kBert.id());
  EXPECT_EQ(effects.sends[0].message.offer().position_size(), 1);
  EXPECT_FALSE(effects.sends[0].message.digest().empty()) << "the first time";
  EXPECT_FALSE(core->say(node_fact("ipc://anna"), now));
}

TEST_F(GossipTest, SignsAnewWhenTheFactChangesAndBeforeItDies) {
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  pass(3s);
  EXPECT_EQ(node(kAnna)->counter(), 1U);
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  pass(60s);
  EXPECT_EQ(node(kAnna)->counter(), 1U) << "nothing new";
  ASSERT_TRUE(core->say(node_fact("tcp://anna:2"), now));
  ASSERT_TRUE(core->say(node_fact("tcp://anna:3"), now));
  pass(60s);
  EXPECT_EQ(node(kAnna)->counter(), 2U);
  EXPECT_EQ(node(kAnna)->node().address(), "tcp://anna:3");
  pass(6h);
  EXPECT_EQ(node(kAnna)->counter(), 3U) << "a quarter of its life is over";
}

TEST_F(GossipTest, SaysOfAnExpertOnceItsRunIsKnown) {
  core->connected(kBert.id(), true, now);
  ASSERT_TRUE(core->say(expert_fact("r-1", 0, 10, "a"), now));
  pass(3s);
  EXPECT_EQ(core->table().size(), 0U);
  hear(kBert, kCoordinator.sign(run_fact("r-1", 2), 1));
  pass(11s);
  EXPECT_EQ(core->table().size(), 2U);
}

// Peers that take digests and answer none may be many: each peer gets its turn.
TEST_F(GossipTest, SendsItsDigestToOnePeerAfterTheOther) {
  Config config;
  config.digest_rounds = 2;
  start(kAnna, Table(kCoordinator.id()), config);
  const std::vector<NodeId> peers = {kBert.id(), kCarl.id(), Author(4).id(), Author(5).id(),
                                     Author(6).id()};
  for (const NodeId& peer : peers) {
    core->connected(peer, true, now);
    pass(1s);
  }
  std::vector<NodeId> digested;
  while (digested.size() < 4 * peers.size()) {
    for (const Send& send : pass(3s).sends) {
      if (!send.message.digest().empty()) digested.push_back(send.peer);
    }
  }
  for (std::size_t i = peers.size(); i < digested.size(); ++i)
    EXPECT_EQ(digested[i], digested[i - peers.size()]) << "digest " << i;
}

// Each digest that a silent peer takes costs digest_rounds.
TEST_F(GossipTest, SendsNoDigestToASilentPeerWhileAnotherSpeaks) {
  Config config;
  config.digest_rounds = 2;
  start(kAnna, Table(kCoordinator.id()), config);
  const std::vector<NodeId> peers = {kCarl.id(), Author(4).id(), Author(5).id(), kBert.id()};
  for (const NodeId& peer : peers) core->connected(peer, true, now);
  const auto digested = [&](bool speaks) {
    std::set<NodeId> to;
    for (int round = 0; round < 16; ++round) {
      if (speaks) hear(kBert, pb::GossipMessage());
      for (const Send& send : pass(3s).sends) {
        if (!send.message.digest().empty()) to.insert(send.peer);
      }
    }
    return to;
  };
  EXPECT_THAT(digested(false), SizeIs(peers.size())) << "each is silent, and has its turn";
  EXPECT_THAT(digested(true), ElementsAre(kBert.id()));
}

TEST_F(GossipTest, AsksForWhatItLacksAndGivesWhatItsPeerLacks) {
  core->connected(kBert.id(), true, now);
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  pass(3s);
  pb::GossipMessage offer;
  const pb::SignedRecord berts = kBert.sign(node_fact("tcp://bert:1"), 1);
  *offer.mutable_offer() = heads(berts);
  const Effects effects = hear(kBert, offer);
  ASSERT_THAT(effects.sends, SizeIs(1));
  const pb::GossipMessage& answer = effects.sends[0].message;
  ASSERT_EQ(answer.wants_size(), 1);
  EXPECT_EQ(answer.wants(0), offer.offer().position(0));
  ASSERT_EQ(answer.records_size(), 1) << "its own news";
  EXPECT_THAT(hear(kBert, berts).news, SizeIs(1));
  EXPECT_THAT(hear(kBert, offer).sends[0].message.wants(), IsEmpty());
  pb::GossipMessage want;
  want.add_wants(offer.offer().position(0));
  EXPECT_THAT(hear(kBert, want).sends[0].message.records(), SizeIs(1));
}

TEST_F(GossipTest, ADigestFindsWhatIsDifferent) {
  core->connected(kBert.id(), true, now);
  const pb::SignedRecord carls = kCarl.sign(node_fact("tcp://carl:1"), 1);
  hear(kBert, carls);
  pb::GossipMessage digest;
  digest.set_digest(encode_fingerprints({}));
  const pb::GossipMessage answer = hear(kBert, digest).sends.at(0).message;
  ASSERT_EQ(answer.listings_size(), 1);
  EXPECT_EQ(answer.listings(0).heads().position_size(), 1);
  // From the other side: it lists nothing, so it lacks Carl's.
  pb::GossipMessage listing;
  *listing.add_listings() = answer.listings(0);
  listing.mutable_listings(0)->clear_heads();
  EXPECT_THAT(hear(kBert, listing).sends.at(0).message.records(), SizeIs(1));
  // It lists a newer one.
  *listing.mutable_listings(0) = answer.listings(0);
  listing.mutable_listings(0)->mutable_heads()->set_counter(0, 2);
  now = at(now.boot + 10s);
  EXPECT_THAT(hear(kBert, listing).sends.at(0).message.wants(), SizeIs(1));
}

TEST_F(GossipTest, WhoForgesIsShutOutForAWhile) {
  core->connected(kBert.id(), true, now);
  pb::SignedRecord forged = kCarl.sign(node_fact("tcp://evil:1"), 1);
  forged.mutable_signature()->back() ^= 1;
  const Effects effects = hear(kBert, forged);
  ASSERT_THAT(effects.misbehaved, SizeIs(1));
  EXPECT_EQ(effects.misbehaved[0].peer, kBert.id());
  EXPECT_EQ(node(kCarl), nullptr);
  EXPECT_EQ(hear(kBert, kCarl.sign(node_fact(""), 2)).news.size(), 0U) << "its records are dropped";
  core->connected(kBert.id(), false, now);
  EXPECT_THAT(core->take_effects().misbehaved, SizeIs(1)) << "nor may it come back";
  const std::uint64_t checked = verifier.signatures_checked();
  hear(kBert, forged);
  EXPECT_EQ(verifier.signatures_checked(), checked);
  pass(11min);
  core->connected(kBert.id(), false, now);
  EXPECT_THAT(core->take_effects().misbehaved, IsEmpty());
}

TEST_F(GossipTest, WhoSendsWithoutEndIsShutOut) {
  core->connected(kBert.id(), true, now);
  Effects all;
  pb::GossipMessage want;
  want.add_wants(1);
  int calls = 0;
  while (all.misbehaved.empty() && calls < 10'000) {
    all = hear(kBert, want);
    ++calls;
  }
  EXPECT_LE(calls, 1000);
}

TEST_F(GossipTest, AListingOverManyBucketsIsRefused) {
  core->connected(kBert.id(), true, now);
  pb::GossipMessage listing;
  listing.add_listings()->set_last(~0ULL);
  EXPECT_THAT(hear(kBert, listing).misbehaved, SizeIs(1));
}

TEST_F(GossipTest, APeerIsGivenABoundedNumberOfBytesEachRound) {
  core->connected(kBert.id(), true, now);
  for (std::uint64_t i = 10; i < 74; ++i) {
    hear(kBert, Author(i).sign(node_fact(text("tcp://n:", i)), 1));
    if (i % 16 == 0) pass(3s);
  }
  pass(3s);
  std::size_t bytes = 0;
  for (int i = 0; i < 30; ++i) {
    pb::GossipMessage want;
    for (std::uint64_t n = 10; n < 74; ++n) {
      want.add_wants(position_of({.kind = Kind::kNode, .author = Author(n).id()}, false));
    }
    for (const Send& send : hear(kBert, want).sends) bytes += send.message.ByteSizeLong();
  }
  EXPECT_GT(bytes, 400U << 10);
  EXPECT_LT(bytes, 600U << 10);
}

TEST_F(GossipTest, VerificationsAreBoundedEachRound) {
  start(kAnna, Table(kCoordinator.id()), {.verifications = 10});
  core->connected(kBert.id(), true, now);
  pb::GossipMessage many;
  for (std::uint64_t i = 10; i < 60; ++i) *many.add_records() = Author(i).sign(node_fact(""), 1);
  hear(kBert, many);
  EXPECT_LE(verifier.signatures_checked(), 12U);
  pass(3s);
  hear(kBert, many);
  EXPECT_GT(core->table().size(), 5U);
}

TEST_F(GossipTest, EquivocationIsToldOnceAndDecidedAlike) {
  core->connected(kBert.id(), true, now);
  pb::SignedRecord small = kCarl.sign(node_fact("tcp://carl:1"), 1);
  pb::SignedRecord great = kCarl.sign(node_fact("tcp://carl:2"), 1);
  if (blake2b(small.body()) > blake2b(great.body())) std::swap(small, great);
  hear(kBert, small);
  now = at(now.boot + 10s);
  Effects effects = hear(kBert, great);
  ASSERT_THAT(effects.reports, SizeIs(1));
  EXPECT_EQ(effects.reports[0].author, kCarl.id());
  EXPECT_THAT(effects.reports[0].reason, HasSubstr("two records of one version"));
  EXPECT_THAT(effects.misbehaved, IsEmpty()) << "the node that passes it on is not to blame";
  now = at(now.boot + 10s);
  effects = hear(kBert, small);
  EXPECT_THAT(effects.reports, IsEmpty());
  EXPECT_EQ(node(kCarl)->node().address(),
            value_of(protocol::parse_record_body(great.body())).node().address());
}

TEST_F(GossipTest, AStartWhoseClockWentBackGoesBeyondItsOlderRecords) {
  core->connected(kBert.id(), true, now);
  ASSERT_TRUE(core->say(node_fact("tcp://anna:new"), now));
  pass(3s);
  const pb::SignedRecord earlier = kAnna.sign(node_fact("tcp://anna:old"), 7, now, 24h, 99);
  const Effects effects = hear(kBert, earlier);
  ASSERT_THAT(effects.reports, SizeIs(1));
  pass(20s);
  EXPECT_EQ(node(kAnna)->node().address(), "tcp://anna:new");
  EXPECT_GT(node(kAnna)->incarnation(), 99U) << "which numbers of 99 were signed is not known";
  EXPECT_EQ(node(kAnna)->counter(), 1U);
}

// Its records have died everywhere; peers remember their versions for hours,
// refuse older ones, and have none to show it.
TEST_F(GossipTest, AStartGoesBeyondWhatItsDiskKnowsOfAlsoWhereThatHasDied) {
  constexpr std::uint64_t kAhead = kToday + 7'200'000;
  start(kAnna, Table(kCoordinator.id()), {.incarnation = kAhead});
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  pass(3s);
  const std::string saved = core->save(now);
  now = at(now.boot + 48h);
  const Table loaded = load_table(saved, verifier, {}, now);
  EXPECT_EQ(loaded.size(), 0U);
  const std::uint64_t next = incarnation_after(saved, kToday, 1);
  EXPECT_GT(next, kAhead);
  EXPECT_NE(incarnation_after(saved, kToday, 2), next)
      << "a start in between may have kept nothing";
  start(kAnna, loaded, {.incarnation = next});
  ASSERT_TRUE(core->say(node_fact("tcp://anna:2"), now));
  pass(3s);
  EXPECT_EQ(node(kAnna)->incarnation(), next);
  EXPECT_EQ(incarnation_after("", kToday, 1), static_cast<std::uint64_t>(kToday));
  EXPECT_EQ(incarnation_after(saved, kToday + 10'800'000, 1),
            static_cast<std::uint64_t>(kToday) + 10'800'000)
      << "a clock that is beyond goes on";
}

// What a process signs under grows with what it finds of itself, and goes onto
// the disk with that.
TEST_F(GossipTest, WhatIsKeptNamesTheHighestIncarnation) {
  core->connected(kBert.id(), true, now);
  ASSERT_TRUE(core->say(node_fact("tcp://anna:new"), now));
  pass(3s);
  EXPECT_EQ(core->incarnation(), 10U);
  hear(kBert, kAnna.sign(node_fact("tcp://anna:old"), 7, now, 24h, 99));
  EXPECT_GT(core->incarnation(), 99U);
  EXPECT_GT(incarnation_after(core->save(now), 1, 1), core->incarnation());
}

// Also where it has nothing to say yet of what those records are about.
TEST_F(GossipTest, AFirstWordGoesBeyondWhateverEarlierStartsSigned) {
  core->connected(kBert.id(), true, now);
  hear(kBert, kCoordinator.sign(run_fact("r-1", 2), 1));
  hear(kBert, kAnna.sign(expert_fact("r-1", 1, 10, "old"), 7, now, 24h, 99));
  ASSERT_TRUE(core->say(node_fact("tcp://anna:new"), now));
  pass(3s);
  EXPECT_GT(node(kAnna)->incarnation(), 99U);
}

TEST_F(GossipTest, ALaterStartThatSaysTheSameSignsNothingAnew) {
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  pass(3s);
  Table kept = core->table();
  start(kAnna, kept, {.incarnation = 11});
  ASSERT_TRUE(core->say(node_fact("tcp://anna:1"), now));
  pass(1h);
  EXPECT_EQ(node(kAnna)->incarnation(), 10U);
  pass(6h);
  EXPECT_EQ(node(kAnna)->incarnation(), 11U) << "before it dies";
  start(kAnna, core->table(), {.incarnation = 12});
  ASSERT_TRUE(core->say(node_fact("tcp://anna:2"), now));
  pass(3s);
  EXPECT_EQ(node(kAnna)->incarnation(), 12U);
}

TEST_F(GossipTest, ARevokedPeerIsCutOff) {
  core->connected(kBert.id(), true, now);
  core->connected(kCarl.id(), true, now);
  hear(kCarl, kBert.sign(node_fact(""), 1));
  const Effects effects = hear(kCarl, kCoordinator.sign(revocation_fact(kBert.id()), 1));
  ASSERT_THAT(effects.revoked, SizeIs(1));
  EXPECT_EQ(node(kBert), nullptr);
  EXPECT_THAT(hear(kBert, kCarl.sign(node_fact(""), 1)).news, IsEmpty());
  core->connected(kBert.id(), false, now);
  EXPECT_THAT(core->take_effects().misbehaved, SizeIs(1));
  // Who has not heard of it yet is told.
  const Effects told = hear(kCarl, kBert.sign(node_fact(""), 2));
  ASSERT_THAT(told.sends, SizeIs(1));
  EXPECT_THAT(told.sends[0].message.records(), SizeIs(1));
}

TEST_F(GossipTest, ARevocationMayArriveFromTheRevokedItself) {
  core->connected(kBert.id(), true, now);
  pb::GossipMessage message;
  *message.add_records() = kCoordinator.sign(revocation_fact(kBert.id()), 1);
  *message.add_records() = kCarl.sign(node_fact(""), 1);
  message.add_wants(1);
  EXPECT_THAT(hear(kBert, message).revoked, SizeIs(1));
  EXPECT_THAT(pass(10s).sends, IsEmpty());
}

TEST_F(GossipTest, WishesForPeersThatCanBeDialled) {
  core->connected(kCoordinator.id(), true, now);
  hear(kCoordinator, kBert.sign(node_fact(""), 1));
  hear(kCoordinator, kCarl.sign(node_fact("tcp://carl:1"), 1));
  const Effects effects = pass(3s);
  ASSERT_THAT(effects.dials, SizeIs(1));
  EXPECT_EQ(effects.dials[0].node->key.author, kCarl.id());
  EXPECT_THAT(pass(3s).dials, IsEmpty()) << "not at once again";
  EXPECT_THAT(pass(61s).dials, SizeIs(1));
}

TEST_F(GossipTest, TheCoordinatorIsAPeerNowAndThenOnly) {
  core->connected(kCoordinator.id(), true, now);
  core->connected(kBert.id(), true, now);
  std::size_t to_coordinator = 0, to_bert = 0;
  for (int round = 0; round < 64; ++round) {
    hear(kBert, pb::GossipMessage());
    for (const Send& send : pass(3s).sends) ++(send.peer == kBert.id() ? to_bert : to_coordinator);
  }
  EXPECT_EQ(to_coordinator, 4U);
  EXPECT_EQ(to_bert, 64U);
}

TEST_F(GossipTest, WhoOnlyHasASilentPeerAsksTheCoordinatorWhatItLacks) {
  core->connected(kCoordinator.id(), true, now);
  core->connected(kBert.id(), false, now);
  pass(Config().round * Config().digest_rounds + 1s);
  const auto digests_for_coordinator = [&](bool speaks) {
    int digests = 0;
    for (unsigned round = 0; round < 2 * Config().digest_rounds; ++round) {
      if (speaks) hear(kBert, pb::GossipMessage());
      for (const Send& send : pass(Config().round).sends)
        digests += send.peer == kCoordinator.id() && !send.message.digest().empty() ? 1 : 0;
    }
    return digests;
  };
  EXPECT_EQ(digests_for_coordinator(false), 2);
  EXPECT_EQ(digests_for_coordinator(true), 0);
}

TEST_F(GossipTest, OldRecordsThatWereLackingAreNoNews) {
  core->connected(kBert.id(), true, now);
  pb::SignedRecord old = kCarl.sign(node_fact(""), 1);
  old.set_age_ms(3'600'000);
  hear(kBert, old);
  EXPECT_EQ(pass(3s).sends.at(0).message.offer().position_size(), 0);
}

// Many more than fit into one message.
TEST_F(GossipTest, ARestoredCoordinatorGetsBackEveryRevocationThatAPeerHolds) {
  constexpr std::size_t kRevoked = 3 * protocol::kGossipMessageRecords + 5;
  Table held(kCoordinator.id());
  for (std::uint64_t i = 0; i < kRevoked; ++i) {
    const auto record = kCoordinator.sign(revocation_fact(identity_of(1000 + i).node_id()), 1, now);
    held.put(genuine(verifier, record, now), {}, now);
  }
  Config config;
  config.coordinator_key = kCoordinator.identity.ed25519_key();
  config.certificate = kAnna.certificate;
  config.incarnation = 10;
  Gossip peer(config, kAnna.identity, verifier, std::move(held), now);
  peer.connected(kCoordinator.id(), true, now);
  start(kCoordinator, {});
  core->recall(true);
  core->connected(kAnna.id(), false, now);
  std::vector<Send> asked = core->take_effects().sends;
  std::size_t messages = 0;
  while (!asked.empty()) {
    ASSERT_THAT(asked, SizeIs(1));
    ASSERT_THAT(core->recalled(), IsEmpty());
    peer.received(kCoordinator.id(), asked[0].message, now);
    for (const Send& answer : peer.take_effects().sends) {
      EXPECT_TRUE(protocol::validate_gossip_message(answer.message));
      core->received(kAnna.id(), answer.message, now);
      ++messages;
    }
    asked = core->take_effects().sends;
  }
  EXPECT_EQ(messages, 4U);
  EXPECT_THAT(core->recalled(), testing::Contains(kAnna.id()));
  std::size_t known = 0;
  for (std::uint64_t i = 0; i < kRevoked; ++i)
    known += core->table().is_revoked(identity_of(1000 + i).node_id(), now) ? 1 : 0;
  EXPECT_EQ(known, kRevoked);
}

TEST_F(GossipTest, APeerThatDoesNotAnswerIsAskedAgainEachRound) {
  start(kCoordinator, {});
  core->connected(kAnna.id(), false, now);
  EXPECT_THAT(core->take_effects().sends, IsEmpty());
  core->recall(true);
  for (int round = 0; round < 2; ++round) {
    const Effects effects = pass(10s);
    EXPECT_TRUE(std::ranges::any_of(
        effects.sends, [](const Send& each) { return each.message.has_revocations_from(); }));
  }
  EXPECT_THAT(core->recalled(), IsEmpty());
}

}  // namespace
}  // namespace skerry::gossip
