// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gossip_aftermath.h"

#include <algorithm>

#include "base/text.h"
#include "gossip/router_parts.h"

namespace skerry::simulation {
namespace {

constexpr Duration kEvery = seconds(5);
constexpr Duration kAlone = seconds(20);
constexpr Duration kEnding = seconds(15);
constexpr Duration kDatesDiffer = seconds(30);  // clocks drift by .5 %

}  // namespace

GossipAftermath::GossipAftermath(Cluster& cluster)
    : cluster_(cluster), spread_(kSpreadRounds * cluster.world().gossip->pace.round) {}

// Everybody who could speak and hear, with how long it could without a break.
std::vector<GossipAftermath::Speaker> GossipAftermath::speakers() {
  const Duration now = cluster_.world().timeline.now();
  std::vector<Speaker> all;
  const auto add = [&](Speaker speaker, std::uint64_t life, bool is_connected) {
    Place& place = places_.try_emplace(speaker.name, Place{life, now}).first->second;
    if (!is_connected || place.life != life) place = {life, now};
    if (!is_connected) return;
    speaker.since = place.since;
    all.push_back(std::move(speaker));
  };
  CoordinatorMachine& coordinator = cluster_.coordinator();
  if (coordinator.records() != nullptr) {
    add({kCoordinatorAddress,
         coordinator_identity().id,
         coordinator.records(),
         coordinator.now(),
         {}},
        coordinator.life(), !coordinator.is_paused());
  }
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    const DaemonMachine& daemon = cluster_.daemon(i);
    if (daemon.records() == nullptr || is_out(daemon.id())) continue;
    add({daemon.name(), daemon.id(), daemon.records(), daemon.now(), {}}, daemon.life(),
        !daemon.is_paused() && daemon.core()->connected() && daemon.hears_coordinator());
  }
  return all;
}

// Revoked as far as a record tells: also where a restored backup has forgotten
// it.
bool GossipAftermath::is_out(const NodeId& node) {
  const gossip::Table* records = cluster_.coordinator().records();
  return records != nullptr && records->is_revoked(node, cluster_.coordinator().now());
}

void GossipAftermath::look() {
  const std::vector<Speaker> all = speakers();
  for (const Speaker& speaker : all) {
    if (speaker.id != coordinator_identity().id) check_signs(speaker);
    speaker.table->for_each(speaker.now, [&](const gossip::Entry& entry) {
      if (entry.record->key.author == speaker.id) hear(speaker, entry);
    });
  }
  check(all);
  for (const NodeId& author : cluster_.world().gossip->rules.two_faced())
    check_two_faced(all, author);
  cluster_.world().timeline.after(kEvery, [this] { look(); });
}

// What is said of an expert is taken only once its run is known: one after the
// other.
Duration GossipAftermath::within(const gossip::Key& key) const {
  return key.kind == gossip::Kind::kExpert ? 2 * spread_ : spread_;
}

void GossipAftermath::hear(const Speaker& speaker, const gossip::Entry& entry) {
  const Duration now = cluster_.world().timeline.now();
  std::deque<Word>& words = words_[entry.record->key];
  if (words.empty() || words.back().version < entry.record->version)
    words.push_back({entry.record->version, now});
  while (words.size() > 1 &&
         now - std::max(words[1].since, speaker.since) >= within(entry.record->key))
    words.pop_front();
}

void GossipAftermath::check(const std::vector<Speaker>& all) {
  const Duration now = cluster_.world().timeline.now();
  // A record that its author no longer renews, as one of an earlier life, may
  // expire here a moment sooner than there. If it is renewed, it is news.
  std::erase_if(words_, [&](const auto& said) {
    const auto author = std::ranges::find(all, said.first.author, &Speaker::id);
    if (author == all.end()) return false;
    const gossip::Entry* own = author->table->find(said.first, author->now);
    return own == nullptr || author->now.boot + kEnding >= seconds(own->dies_at_s);
  });
  for (const auto& [key, words] : words_) {
    const auto author = std::ranges::find(all, key.author, &Speaker::id);
    if (author == all.end() || now - std::max(author->since, words.front().since) < within(key))
      continue;
    for (const Speaker& other : all) {
      if (now - other.since < within(key)) continue;
      const gossip::Entry* held = other.table->find(key, other.now);
      if (held != nullptr && held->record->version >= words.front().version) continue;
      // An author whose clock was ahead lost what it had signed. Nobody has
      // those newer records any more, and their former holders refuse older
      // ones. (S11 of gossip_rules.h says when an author must know of them.)
      if (cluster_.world().gossip->rules.is_overtaken(key, words.front().version)) continue;
      if (ends_early(key, all, other)) continue;
      return cluster_.world().violated(
          "L3", text(other.name, " does not hold what ", author->name, " said ",
                     human_duration(now - words.front().since), " ago: ", gossip::describe(key)));
    }
  }
}

// The lifetimes of a simulation are shorter than the slack of clocks. A record
// that its author dated wrongly may therefore expire early at another process,
// which then takes nothing of that run's experts either.
bool GossipAftermath::ends_early(const gossip::Key& key, const std::vector<Speaker>& all,
                                 const Speaker& other) const {
  const auto author = std::ranges::find(all, key.author, &Speaker::id);
  const gossip::Entry* own = author == all.end() ? nullptr : author->table->find(key, author->now);
  if (own != nullptr && is_misdated(*own) &&
      cluster_.world().gossip->rules.has_expired(other.name, own->record->version))
    return true;
  return key.kind == gossip::Kind::kExpert &&
         ends_early(
             {.kind = gossip::Kind::kRun, .author = coordinator_identity().id, .run = key.run}, all,
             other);
}

bool GossipAftermath::is_misdated(const gossip::Entry& own) const {
  const Duration signed_at = cluster_.world().gossip->rules.signed_at(own.record->version);
  const Duration dated = milliseconds(own.record->body.issued_unix_ms() - kEpochStart);
  return std::chrono::abs(dated - signed_at) > kDatesDiffer;
}

std::vector<gossip::Version> GossipAftermath::misdated_by_coordinator() {
  std::vector<gossip::Version> found;
  for (const Speaker& speaker : speakers()) {
    if (speaker.id != coordinator_identity().id) continue;
    speaker.table->for_each(speaker.now, [&](const gossip::Entry& entry) {
      const gossip::Kind kind = entry.record->key.kind;
      const bool is_told = kind == gossip::Kind::kRun || kind == gossip::Kind::kExpert;
      if (is_told && is_misdated(entry)) found.push_back(entry.record->version);
    });
  }
  return found;
}

void GossipAftermath::check_two_faced(const std::vector<Speaker>& all, const NodeId& author) {
  const Speaker* first = nullptr;
  const gossip::Entry* held_there = nullptr;
  for (const Speaker& speaker : all) {
    if (cluster_.world().timeline.now() - speaker.since < spread_) continue;
    const gossip::Entry* held = speaker.table->find_node(author, speaker.now);
    if (held == nullptr) continue;
    if (held_there != nullptr && held->record->version != held_there->record->version) {
      return cluster_.world().violated("S10", text(first->name, " and ", speaker.name,
                                                   " hold different contents of one version of ",
                                                   gossip::describe(held->record->key)));
    }
    first = &speaker;
    held_there = held;
  }
}

// Anew after a quarter of a lifetime; one whose versions are refused signs in
// vain.
void GossipAftermath::check_signs(const Speaker& node) {
  if (cluster_.world().timeline.now() - node.since < spread_) return;
  const gossip::Entry* own = node.table->find_node(node.id, node.now);
  if (own != nullptr && gossip::Table::age(*own, node.now) < own->record->lifetime() / 2) return;
  cluster_.world().violated("L3", text(node.name, " signs nothing anew of what it is"));
}

// Peers refuse its node record: they remember a newer one, of an earlier life
// or of a twin, which has expired.
bool GossipAftermath::is_overtaken(const DaemonMachine& daemon) {
  const gossip::Entry* own = daemon.records()->find_node(daemon.id(), daemon.now());
  return own != nullptr &&
         cluster_.world().gossip->rules.is_overtaken(own->record->key, own->record->version);
}

bool GossipAftermath::is_kept(const Hash& manifest) {
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    const DaemonMachine& daemon = cluster_.daemon(i);
    if (daemon.records() == nullptr || is_out(daemon.id()) || is_overtaken(daemon)) continue;
    if (daemon.has_stored(manifest)) return true;
  }
  return false;
}

bool GossipAftermath::is_trained_here(const Hash& manifest) {
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    const DaemonMachine& daemon = cluster_.daemon(i);
    if (daemon.records() == nullptr || is_out(daemon.id()) || is_overtaken(daemon)) continue;
    const auto keeps = [&](const daemon::KeptCheckpoint& each) {
      return each.object.manifest() == manifest.raw();
    };
    if (std::ranges::any_of(daemon.core()->kept(), keeps)) return true;
  }
  return false;
}

void GossipAftermath::without_coordinator() {
  cluster_.run_for(spread_);
  if (!cluster_.is_sound()) return;
  std::vector<Head> heads;
  for (const coordinator::ExpertView& expert : cluster_.coordinator().core()->experts()) {
    if (expert.head && is_kept(*expert.head))
      heads.push_back(
          {expert.id.index, expert.head_step, *expert.head, is_trained_here(*expert.head)});
  }
  std::set<std::string> out;
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    if (is_out(cluster_.daemon(i).id())) out.insert(cluster_.daemon(i).name());
  }
  const std::vector<gossip::Version> misdated = misdated_by_coordinator();
  cluster_.coordinator().kill();
  cluster_.run_for(kAlone);
  for (std::size_t i = 0; i < cluster_.daemons() && cluster_.is_sound(); ++i) {
    const DaemonMachine& daemon = cluster_.daemon(i);
    if (daemon.records() == nullptr || out.contains(daemon.name())) continue;
    const bool ends_early = std::ranges::any_of(misdated, [&](const gossip::Version& record) {
      return cluster_.world().gossip->rules.has_expired(daemon.name(), record);
    });
    if (!ends_early) ask(daemon, heads);
  }
}

void GossipAftermath::ask(const DaemonMachine& daemon, const std::vector<Head>& heads) {
  World& world = cluster_.world();
  const gossip::Table& records = *daemon.records();
  std::vector<pb::RunRecord> runs = gossip::known_runs(records, daemon.now());
  // A run that was deleted, and that a restored coordinator does not know,
  // stays an orphan.
  std::erase_if(runs, [](const pb::RunRecord& run) { return run.name() != kRunName; });
  if (runs.size() != 1)
    return world.violated("alone",
                          text(daemon.name(), "'s records tell of ", runs.size(), " runs"));
  const auto parts = gossip::router_parts(records, RunId(runs.front().run()), daemon.now());
  for (const Head& head : heads) {
    const auto found = std::ranges::find(parts->experts, head.expert, &gossip::ExpertSource::index);
    const bool is_known =
        found != parts->experts.end() &&
        found->best.checkpoint().manifest() == head.manifest.raw() &&
        std::ranges::any_of(found->holders, [&](const gossip::Holder& holder) {
          const auto keeper = world.keepers.find(holder.node);
          return keeper != world.keepers.end() && keeper->second->has_stored(head.manifest);
        });
    if (!is_known) {
      return world.violated("alone", text(daemon.name(), "'s records do not tell where expert ",
                                          head.expert, "'s last commit is, of step ", head.step));
    }
  }
  // What goes with a checkpoint is held by who trained it; a node that only
  // holds a copy has the checkpoint alone.
  const bool has_all =
      std::ranges::all_of(heads, [](const Head& head) { return head.is_trained_here; });
  if (has_all && heads.size() == cluster_.options().experts && !parts->missing.empty())
    world.violated("alone",
                   text(daemon.name(), "'s records lack a part: ", parts->missing.front()));
}

}  // namespace skerry::simulation
