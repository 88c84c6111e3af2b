// SPDX-License-Identifier: Apache-2.0
// Gossip keeps its safety rules whatever the network, the clocks and its
// members do (S10, S11, S15), from seeds. All tables agree once the faults stop
// (L3).
#include "tests/simulation/gossip_fleet.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "gossip/router_parts.h"
#include "gossip/testing/testing.h"

namespace skerry::simulation {
namespace {

using gossip::Author;
using gossip::Key;
using gossip::Kind;
using gossip::RecordPtr;
using gossip::Version;

const std::string kRun = "r-1";
constexpr std::uint32_t kExperts = 16;

// Looks at everything that any core does, and knows the truth.
class Watcher {
 public:
  explicit Watcher(Fleet& fleet) : fleet_(fleet) {
    fleet.on_effects = [this](Member& member, const gossip::Effects& effects) {
      look(member, effects);
    };
  }

  std::optional<Version> last_said(const Key& key) const {
    const auto found = said_.find(key);
    return found == said_.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<Key> keys_of(const NodeId& author) const {
    std::vector<Key> keys;
    for (const auto& [key, version] : said_) {
      if (key.author == author) keys.push_back(key);
    }
    return keys;
  }
  std::uint64_t banned() const { return banned_; }
  std::uint64_t reported() const { return reported_; }
  std::uint64_t trace() const { return trace_; }
  // An age may be false by two hours, and two clocks wrong by two.
  Duration longest_false_life = 4h;

 private:
  void look(Member& member, const gossip::Effects& effects) {
    for (const RecordPtr& record : effects.news) accepted(member, *record);
    for (const gossip::Misbehaved& each : effects.misbehaved) {
      const Member* peer = fleet_.find(each.peer);
      EXPECT_TRUE(peer->lies || revoked_.contains(peer->id))
          << "an honest peer is shut out: " << each.reason;
      if (peer->lies) ++banned_;
    }
    for (const gossip::Report& each : effects.reports) {
      const Member* author = fleet_.find(each.author);
      EXPECT_TRUE(author->lies || author->starts > 1) << each.reason;
      ++reported_;
    }
    const gossip::Table& table = member.core->table();
    const gossip::Limits& limits = table.limits();
    EXPECT_LE(table.size(), limits.records);
    EXPECT_LE(table.bytes(), limits.bytes);
    EXPECT_LE(table.remembered_dead(), limits.remembered_dead + 64);
    EXPECT_LE(member.verifier->remembered(), 3U * 1024);
  }

  void accepted(Member& member, const gossip::Record& record) {
    trace_ = trace_ * 31 + record.version.stamp() + member.number;
    const Member* author = fleet_.find(record.key.author);
    ASSERT_NE(author, nullptr) << "not on the roster";
    EXPECT_TRUE(protocol::verify_signature(author->identity.ed25519_key(), protocol::kRecordDomain,
                                           record.wire.body(), record.wire.signature()));
    if (!author->lies && author == &member) {
      said_[record.key] = record.version;
      signed_at_.emplace(record.version.body, fleet_.time());
      if (record.key.kind == Kind::kRevocation) revoked_.insert(record.key.subject);
    }
    if (!author->lies) {
      const auto signed_at = signed_at_.find(record.version.body);
      ASSERT_NE(signed_at, signed_at_.end()) << describe(record.key) << " was never said";
      EXPECT_LT(fleet_.time() - signed_at->second, record.lifetime() + longest_false_life)
          << "dead";
    }
    EXPECT_FALSE(member.core->table().is_revoked(record.key.author, fleet_.now(member)));
    Version& seen = seen_[{member.number, member.starts}][record.key];
    EXPECT_LT(seen, record.version) << describe(record.key) << " went back";
    seen = record.version;
  }

  Fleet& fleet_;
  std::map<Key, Version> said_;  // what an honest author said last
  std::map<Hash, Duration> signed_at_;
  std::set<NodeId> revoked_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::map<Key, Version>>
      seen_;  // by each start of each member
  std::uint64_t banned_ = 0;
  std::uint64_t reported_ = 0;
  std::uint64_t trace_ = 0;
};

std::string address_of(const Member& member) {
  return member.only_dials ? "" : text("tcp://10.0.0.", member.number, ":7610");
}
pb::RecordBody node_fact(const Member& member, std::uint64_t change) {
  return gossip::node_fact(address_of(member), {text("checkpoint ", change)});
}

// What a rostered node may try.
class Liar {
 public:
  Liar(Fleet& fleet, Member& self, std::uint64_t seed)
      : fleet_(fleet),
        self_(self),
        author_(self.number),
        dice_(seed, "liar", static_cast<std::uint32_t>(self.number)) {
    self.lies = true;
  }

  void hear(const pb::GossipMessage& message) {
    for (const pb::SignedRecord& record : message.records()) {
      if (heard_.size() < 500) heard_.push_back(record);
    }
  }

  void act() {
    for (std::size_t i = 0; i < fleet_.size(); ++i) {
      if (dice_.chance(0.2)) fleet_.dial(self_, fleet_.member(i));
    }
    std::vector<std::size_t> peers;
    for (const auto& [number, link] : self_.links) peers.push_back(number);
    std::ranges::sort(peers);
    for (const std::size_t number : peers) lie_to(fleet_.member(number));
  }

 private:
  void lie_to(Member& peer) {
    pb::GossipMessage message;
    switch (dice_.between(0, 8)) {
      case 0:
        forge(*message.add_records());
        break;
      case 1:  // something about the coordinator's business
        *message.add_records() = author_.sign(
            dice_.chance(0.5) ? gossip::run_fact("r-evil", 4) : gossip::revocation_fact(peer.id),
            ++counter_, fleet_.now(self_));
        break;
      case 2:  // two contents of one version
        *message.add_records() = author_.sign(node_fact(self_, dice_.between(0, 1)),
                                              1'000'000 + counter_ / 50, fleet_.now(self_));
        break;
      case 3:  // as much as it may say, as often as it can
        for (ExpertIndex i = 0; i < kExperts; ++i) {
          const pb::RecordBody fact =
              gossip::expert_fact(kRun, i, 1'000'000, text(counter_), 1ULL << 40);
          *message.add_records() = author_.sign(fact, ++counter_, fleet_.now(self_));
        }
        break;
      case 4:
        for (int i = 0; i < 64; ++i) replay(message);
        break;
      case 5:  // versions that nobody has
        for (const pb::SignedRecord& each : heard_) {
          if (message.offer().position_size() >= 200) break;
          auto opened = gossip::open_record(each, gossip::the_coordinator().node_id());
          opened->version.counter += dice_.between(0, 100);
          gossip::add_head(*message.mutable_offer(), *opened);
        }
        break;
      case 6: {
        pb::Listing& listing = *message.add_listings();
        listing.set_first(dice_.u64());
        listing.set_last(listing.first() | (dice_.chance(0.9) ? (1ULL << 56) - 1 : ~0ULL));
        break;
      }
      case 7:
        message.set_digest(
            std::string(8 * protocol::kGossipBuckets, static_cast<char>(dice_.u64())));
        break;
      default: {
        const char noise = static_cast<char>(dice_.u64());
        fleet_.send(self_, peer, std::string(dice_.between(0, 100), noise));
        return;
      }
    }
    for (std::uint64_t i = dice_.chance(0.1) ? 600 : 1; i > 0; --i) {
      fleet_.send(self_, peer, message.SerializeAsString());
    }
  }

  void forge(pb::SignedRecord& record) {
    const std::size_t victim = dice_.between(0, fleet_.size() - 1);
    record =
        Author(victim).sign(victim == 0 ? gossip::run_fact(kRun, 1) : node_fact(self_, counter_),
                            1ULL << 50, fleet_.now(self_));
    if (dice_.chance(0.5)) {
      record.mutable_signature()->front() ^= 1;
    } else {
      record.set_signature(self_.identity.sign(protocol::kRecordDomain, record.body()));
    }
    if (dice_.chance(0.3)) *record.mutable_certificate() = self_.certificate;
  }

  void replay(pb::GossipMessage& message) {
    if (heard_.empty()) return;
    pb::SignedRecord& record = *message.add_records();
    record = dice_.pick(heard_);
    record.set_age_ms(dice_.chance(0.7) ? 0 : protocol::kRecordLifetimeMs);
  }

  Fleet& fleet_;
  Member& self_;
  Author author_;
  Dice dice_;
  std::vector<pb::SignedRecord> heard_;
  std::uint64_t counter_ = 0;
};

// Everyone who is up and honest holds what every such one said last; the tables
// are alike.
std::string disagreement(Fleet& fleet, const Watcher& watcher, const std::set<std::size_t>& gone) {
  const gossip::Table* first = nullptr;
  for (std::size_t holder = 0; holder < fleet.size(); ++holder) {
    Member& member = fleet.member(holder);
    if (!member.core || gone.contains(holder)) continue;
    for (std::size_t i = 0; i < fleet.size(); ++i) {
      if (!fleet.member(i).core || gone.contains(i)) continue;
      for (const Key& key : watcher.keys_of(fleet.member(i).id)) {
        const gossip::Entry* entry = member.core->table().find(key, fleet.now(member));
        if (entry == nullptr) return text(holder, " does not hold ", describe(key));
        if (entry->record->version != watcher.last_said(key))
          return text(holder, " holds another ", describe(key));
      }
    }
    if (first == nullptr) first = &member.core->table();
    if (member.core->table().fingerprints() != first->fingerprints()) {
      return text(holder, " holds ", member.core->table().size(), " records, the first ",
                  first->size());
    }
  }
  return "";
}

FleetConfig small_fleet(std::uint64_t seed, std::size_t nodes) {
  FleetConfig config{.seed = seed, .nodes = nodes};
  config.limits = {.records = 80,
                   .bytes = 1 << 20,
                   .author_records = 6,
                   .run_records = 40,
                   .remembered_dead = 100};
  config.gossip.rotate = 20s;
  config.gossip.dial_again = 10s;
  config.gossip.ban = 30s;
  return config;
}

class GossipChaos : public testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::size_t kNodes = 24;

  void boot(Member& member, bool with_table) {
    member.clock_offset = dice.duration(0s, 2h) - 1h;
    member.booted = fleet.time();
    if (with_table) {
      fleet.start(member, fleet.load(member));
    } else {
      fleet.start(member);
    }
    say(member);
  }

  void say(Member& member) {
    if (member.number == 0) {
      fleet.say(member, gossip::run_fact(kRun, kExperts));
    } else {
      fleet.say(member, node_fact(member, ++changes));
      if (member.number <= 8) {
        fleet.say(member, gossip::expert_fact(kRun, static_cast<ExpertIndex>(member.number),
                                              100 + changes, text(changes)));
      }
    }
  }

  void one_fault() {
    Member& member = fleet.member(dice.between(0, kNodes));
    switch (dice.between(0, 5)) {
      case 0:
        if (member.core) fleet.stop(member);
        break;
      case 1:
        if (!member.is_up()) boot(member, dice.chance(0.5));
        break;
      case 2:
        fleet.set_group(member, static_cast<unsigned>(dice.between(0, 2)));
        break;
      case 3:
        if (!member.links.empty()) fleet.hang_up(member, fleet.member(member.links.begin()->first));
        break;
      case 4:
        member.clock_offset = dice.duration(0s, 2h) - 1h;
        break;
      default:
        if (member.core) say(member);
    }
  }

  void run_chaos() {
    const std::size_t liars = dice.between(0, 2);
    for (std::size_t i = 0; i < liars; ++i)
      lies.emplace_back(fleet, fleet.member(kNodes - i), GetParam());
    fleet.on_lie = [&](Member& liar, Member&, const pb::GossipMessage& message) {
      lies[kNodes - liar.number].hear(message);
    };
    for (std::size_t i = 0; i <= kNodes; ++i) {
      if (!fleet.member(i).lies) boot(fleet.member(i), false);
    }
    fleet.faults = {.loss = dice.real(0, 0.4),
                    .duplication = dice.real(0, 0.2),
                    .delay_most = dice.duration(2ms, 3s)};
    for (int second = 0; second < 200; ++second) {
      if (dice.chance(0.5)) one_fault();
      for (Liar& liar : lies) liar.act();
      if (second == 100 && fleet.member(0).core) revoke(dice.between(10, 14));
      fleet.run(fleet.time() + 1s);
    }
  }

  void revoke(std::size_t number) {
    fleet.say(fleet.member(0), gossip::revocation_fact(fleet.member(number).id));
    gone.insert(number);
  }

  void heal() {
    fleet.faults = {};
    for (std::size_t i = 0; i <= kNodes; ++i) {
      fleet.set_group(fleet.member(i), 0);
      if (!fleet.member(i).is_up()) boot(fleet.member(i), dice.chance(0.5));
      if (!fleet.member(i).core) continue;
      say(fleet.member(i));
    }
  }

  Fleet fleet{small_fleet(GetParam(), kNodes)};
  Dice dice{GetParam(), "chaos"};
  Watcher watcher{fleet};
  std::vector<Liar> lies;
  std::set<std::size_t> gone;
  std::uint64_t changes = 0;
};

TEST_P(GossipChaos, HoldsItsRulesAndAgreesOnceTheFaultsStop) {
  lies.reserve(2);
  run_chaos();
  heal();
  fleet.run(fleet.time() + 240s);
  EXPECT_EQ(disagreement(fleet, watcher, gone), "");
  for (std::size_t i = 0; i <= 8; ++i)
    EXPECT_EQ(watcher.keys_of(fleet.member(i).id).size(), i == 0 ? 1 + gone.size() : 2U);
  for (std::size_t i = 0; i <= kNodes; ++i) {
    Member& member = fleet.member(i);
    if (!member.core || gone.contains(i)) continue;
    for (const std::size_t each : gone) {
      EXPECT_EQ(member.core->table().find_node(fleet.member(each).id, fleet.now(member)), nullptr)
          << "is revoked";
    }
  }
  EXPECT_EQ(watcher.banned() > 0, !lies.empty());
}

INSTANTIATE_TEST_SUITE_P(seeds, GossipChaos,
                         testing::Range<std::uint64_t>(1, 40 / SKERRY_SEED_DIVISOR + 1));

// Four days of clocks that are wrong by an hour, with a peer that hands out
// dead records as if they were fresh. Living nodes stay known. Dead ones are
// forgotten a day later and stay so.
TEST(GossipClocks, NeitherLoseTheLivingNorKeepTheDead) {
  constexpr std::size_t kNodes = 12;
  FleetConfig config = small_fleet(7, kNodes);
  config.gossip.round = 60s;
  config.gossip.dial_again = config.gossip.rotate = 600s;
  Fleet fleet(config);
  Watcher watcher(fleet);
  Member& liar = fleet.member(kNodes);
  liar.lies = true;
  std::vector<pb::SignedRecord> heard;
  std::set<Hash> known;
  fleet.on_lie = [&](Member&, Member&, const pb::GossipMessage& message) {
    for (const pb::SignedRecord& each : message.records()) {
      if (known.insert(blake2b(each.body())).second) heard.push_back(each);
    }
  };
  for (std::size_t i = 0; i < kNodes; ++i) {
    Member& member = fleet.member(i);
    member.clock_offset = i % 3 == 0 ? -1h : i % 3 == 1 ? 1h : 0h;
    fleet.start(member);
    if (i > 0) fleet.say(member, node_fact(member, i));
  }
  const std::set<std::size_t> dying = {4, 5, 6};
  for (int hour = 1; hour <= 96; ++hour) {
    if (hour == 30) {
      for (const std::size_t i : dying) fleet.stop(fleet.member(i));
    }
    if (hour % 10 == 0)
      fleet.member(7).clock_offset = -fleet.member(7).clock_offset - (hour == 10 ? 1h : 0h);
    for (std::size_t i = 0; i < kNodes; ++i) fleet.dial(liar, fleet.member(i));
    for (std::size_t i = 0; i < kNodes; ++i) {
      pb::GossipMessage asking;
      for (std::size_t n = 1; n < kNodes; ++n) {
        asking.add_wants(
            gossip::position_of({.kind = Kind::kNode, .author = fleet.member(n).id}, false));
      }
      fleet.send(liar, fleet.member(i), asking.SerializeAsString());
      pb::GossipMessage replayed;
      for (const pb::SignedRecord& each : heard) {
        if (replayed.records_size() == static_cast<int>(protocol::kGossipMessageRecords)) break;
        *replayed.add_records() = each;
        replayed.mutable_records(replayed.records_size() - 1)->set_age_ms(0);
      }
      fleet.send(liar, fleet.member(i), replayed.SerializeAsString());
    }
    fleet.run(hour * 1h);
    for (std::size_t i = 0; i < kNodes; ++i) {
      Member& member = fleet.member(i);
      if (!member.core) continue;
      for (std::size_t n = 1; n < kNodes; ++n) {
        const bool held =
            member.core->table().find_node(fleet.member(n).id, fleet.now(member)) != nullptr;
        if (fleet.member(n).core) {
          EXPECT_TRUE(held) << i << " lost " << n << " in hour " << hour;
        } else if (hour > 30 + 24 + 4) {
          EXPECT_FALSE(held) << i << " keeps " << n << " in hour " << hour;
        }
      }
    }
  }
  EXPECT_GT(heard.size(), 40U) << "the liar had something to replay";
  EXPECT_EQ(watcher.banned(), 0U) << "nothing of that was forged";
}

// All start at once and know only the coordinator; then one comes late.
TEST(GossipStart, AFleetThatStartsAtOnceSoonKnowsItself) {
  constexpr std::size_t kNodes = 150;
  FleetConfig config{.seed = 3, .nodes = kNodes, .share_verifier = true};
  Fleet fleet(config);
  Member& late = fleet.member(kNodes);
  std::size_t arrived = 0;
  fleet.on_effects = [&](Member&, const gossip::Effects& effects) {
    arrived += effects.news.size();
  };
  fleet.start(fleet.member(0));
  for (std::size_t i = 1; i < kNodes; ++i) {
    fleet.start(fleet.member(i));
    fleet.say(fleet.member(i), node_fact(fleet.member(i), i));
  }
  const std::size_t all = (kNodes - 1) * kNodes;
  fleet.run(40 * config.gossip.round, [&] { return arrived >= all; });
  EXPECT_EQ(arrived, all);
  const Duration begin = fleet.time();
  fleet.start(late);
  fleet.run(begin + 20 * config.gossip.round,
            [&] { return late.core->table().size() == kNodes - 1; });
  EXPECT_EQ(late.core->table().size(), kNodes - 1);
}

TEST(GossipFleet, AnyNodeCanTellWhereTheEnsembleIs) {
  Fleet fleet(small_fleet(5, 6));
  fleet.faults.loss = 0.3;
  for (std::size_t i = 0; i <= 6; ++i) fleet.start(fleet.member(i));
  fleet.say(fleet.member(0), gossip::run_fact(kRun, 3));
  for (std::size_t i = 1; i <= 3; ++i) {
    const auto index = static_cast<ExpertIndex>(i - 1);
    fleet.say(fleet.member(i),
              gossip::expert_fact(kRun, index, 100 * i, text("checkpoint ", index)));
    fleet.say(fleet.member(i), gossip::node_fact(address_of(fleet.member(i)),
                                                 {"spec", "router", text("checkpoint ", index),
                                                  text("statistics ", index)}));
  }
  fleet.run(60s);
  fleet.stop(fleet.member(0));  // for good
  fleet.run(fleet.time() + 100s);
  for (std::size_t i = 1; i <= 6; ++i) {
    Member& member = fleet.member(i);
    const auto parts = gossip::router_parts(member.core->table(), RunId(kRun), fleet.now(member));
    ASSERT_TRUE(parts) << i;
    EXPECT_TRUE(parts->missing.empty()) << i << ": " << parts->missing.front();
    EXPECT_EQ(parts->experts.size(), 3U);
  }
}

TEST(GossipFleet, TheSameSeedGivesTheSameTrace) {
  const auto trace = [](std::uint64_t seed) {
    Fleet fleet(small_fleet(seed, 10));
    Watcher watcher(fleet);
    fleet.faults = {.loss = 0.3, .duplication = 0.1, .delay_most = 1s};
    for (std::size_t i = 0; i <= 10; ++i) {
      fleet.start(fleet.member(i));
      if (i > 0) fleet.say(fleet.member(i), node_fact(fleet.member(i), i));
    }
    fleet.run(60s);
    return watcher.trace();
  };
  EXPECT_EQ(trace(1), trace(1));
  EXPECT_NE(trace(1), trace(2));
}

}  // namespace
}  // namespace skerry::simulation
