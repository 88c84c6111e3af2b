// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gossip_fleet.h"

#include "base/check.h"
#include "base/text.h"
#include "gossip/testing/testing.h"

namespace skerry::simulation {

using gossip::identity_of;

Fleet::Fleet(FleetConfig config) : config_(std::move(config)), dice_(config_.seed, "fleet") {
  const std::string key = gossip::the_coordinator().ed25519_key();
  for (std::size_t i = 0; i < config_.nodes + 1; ++i) {
    if (i == 0 || !config_.share_verifier) {
      verifiers_.push_back(
          std::make_unique<gossip::Verifier>(key, config_.share_verifier ? 1 << 20 : 1024));
    }
    auto member = std::make_unique<Member>(Member{.number = i, .identity = identity_of(i)});
    member->id = member->identity.node_id();
    if (i > 0) member->certificate = gossip::certificate_of(member->identity);
    member->only_dials = i > 0 && i % 2 == 0;
    member->verifier = verifiers_.back().get();
    numbers_[member->id] = i;
    members_.push_back(std::move(member));
  }
}

Member* Fleet::find(const NodeId& id) {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? nullptr : members_[found->second].get();
}

skerry::Now Fleet::now(const Member& member) const {
  skerry::Now now = gossip::at(time_, member.clock_offset);
  now.boot = time_ - member.booted;
  return now;
}

gossip::Table Fleet::empty_table() const {
  return gossip::Table(gossip::the_coordinator().node_id(), config_.limits);
}

void Fleet::start(Member& member) { start(member, empty_table()); }

void Fleet::start(Member& member, gossip::Table table) {
  SKERRY_CHECK(!member.is_up(), "stop it first");
  gossip::Config config = config_.gossip;
  config.coordinator_key = gossip::the_coordinator().ed25519_key();
  config.certificate = member.certificate;
  config.incarnation = static_cast<std::uint64_t>(now(member).unix_ms);
  config.seed = dice_.u64();
  if (member.number == 0) config.peers_most = members_.size();
  ++member.starts;
  member.core = std::make_unique<gossip::Gossip>(config, member.identity, *member.verifier,
                                                 std::move(table), now(member));
  set_timer(member);
}

gossip::Table Fleet::load(Member& member) {
  return gossip::load_table(member.saved, *member.verifier, config_.limits, now(member));
}

void Fleet::stop(Member& member) {
  member.saved = gossip::save_table(member.core->table(), now(member));
  while (!member.links.empty()) hang_up(member, *members_[member.links.begin()->first]);
  member.core.reset();
}

void Fleet::say(Member& member, const pb::RecordBody& fact) {
  const auto said = member.core->say(fact, now(member));
  SKERRY_CHECK(said.has_value(), said ? "" : said.error().message);
}

void Fleet::dial(Member& from, Member& to) {
  if (!from.is_up() || !to.is_up() || to.only_dials || from.group != to.group ||
      from.number == to.number || from.links.contains(to.number)) {
    return;
  }
  from.links[to.number] = to.links[from.number] = ++last_link_;
  if (from.core) from.core->connected(to.id, true, now(from));
  if (to.core) to.core->connected(from.id, false, now(to));
  carry_out(from);
  carry_out(to);
}

void Fleet::hang_up(Member& one, Member& other) {
  if (one.links.erase(other.number) == 0) return;
  other.links.erase(one.number);
  if (one.core) one.core->disconnected(other.id);
  if (other.core) other.core->disconnected(one.id);
}

void Fleet::set_group(Member& member, unsigned group) {
  member.group = group;
  std::vector<std::size_t> cut;
  for (const auto& [number, link] : member.links) {
    if (members_[number]->group != group) cut.push_back(number);
  }
  for (const std::size_t number : cut) hang_up(member, *members_[number]);
}

void Fleet::push(Happening happening) {
  happening.order = ++order_;
  queue_.push(std::move(happening));
}

void Fleet::set_timer(Member& member) {
  push({.at = member.booted + member.core->wake_at(), .to = member.number, .start = member.starts});
}

void Fleet::send(Member& from, Member& to, std::string bytes) {
  const auto link = from.links.find(to.number);
  if (link == from.links.end()) return;
  from.sent_bytes += bytes.size() + kMessageOverheadBytes;
  const int copies = dice_.chance(faults.duplication) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    if (dice_.chance(faults.loss)) continue;
    push({.at = time_ + dice_.duration(1ms, faults.delay_most),
          .to = to.number,
          .from = from.number,
          .link = link->second,
          .bytes = bytes});
  }
}

void Fleet::deliver(Happening& happening) {
  Member& to = *members_[happening.to];
  Member& from = *members_[happening.from];
  const auto link = to.links.find(happening.from);
  if (link == to.links.end() || link->second != happening.link) return;
  to.received_bytes += happening.bytes.size() + kMessageOverheadBytes;
  const auto message = protocol::parse_gossip_message(happening.bytes);
  if (!message) {
    hang_up(to, from);
  } else if (to.core) {
    to.core->received(from.id, *message, now(to));
    carry_out(to);
  } else if (on_lie) {
    on_lie(to, from, *message);
  }
}

void Fleet::wake(Member& member) {
  if (config_.coordinator && member.number != 0 && !member.links.contains(0))
    dial(member, *members_[0]);
  member.core->tick(now(member));
  carry_out(member);
  set_timer(member);
}

void Fleet::carry_out(Member& member) {
  if (!member.core) return;
  const gossip::Effects effects = member.core->take_effects();
  if (on_effects) on_effects(member, effects);
  const auto cut = [&](const NodeId& id) {
    if (Member* other = find(id)) hang_up(member, *other);
  };
  for (const gossip::Misbehaved& each : effects.misbehaved) cut(each.peer);
  for (const NodeId& each : effects.revoked) cut(each);
  for (const NodeId& each : effects.releases) cut(each);
  for (const gossip::Send& each : effects.sends) {
    if (Member* to = find(each.peer)) send(member, *to, each.message.SerializeAsString());
  }
  for (const gossip::Dial& each : effects.dials) {
    Member* to = find(each.node->key.author);
    if (to != nullptr && !dice_.chance(faults.loss)) dial(member, *to);
  }
}

void Fleet::run(Duration until, const std::function<bool()>& done) {
  while (!queue_.empty() && queue_.top().at <= until) {
    Happening happening = std::move(const_cast<Happening&>(queue_.top()));
    queue_.pop();
    time_ = happening.at;
    Member& to = *members_[happening.to];
    if (happening.link != 0) {
      deliver(happening);
    } else if (to.core && to.starts == happening.start) {
      wake(to);
    }
    if (done && done()) return;
  }
  time_ = until;
}

}  // namespace skerry::simulation
