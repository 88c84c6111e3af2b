// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/aftermath.h"

#include <algorithm>

#include "base/text.h"

namespace skerry::simulation {
namespace {

constexpr Duration kEvery = seconds(1);
// For the next commit, by anybody: an engine that hung just before is given up
// after a minute.
constexpr Duration kNextCommit = seconds(150);
constexpr Duration kHeardAgain = seconds(15);
constexpr Duration kDiskAgain = seconds(30);
constexpr Duration kTurnWait = seconds(10);
constexpr Duration kCopiedAgain = seconds(60);

}  // namespace

std::string where_it_stands(Cluster& cluster) {
  std::string out = text("the run is ", cluster.run_state(), " (", cluster.run_reason(), ")");
  if (cluster.coordinator().core() == nullptr) return out + "; the coordinator is down";
  for (const auto& expert : cluster.coordinator().core()->experts()) {
    out += text("; expert ", expert.id.index, " at step ", expert.head_step);
    if (expert.lease)
      out += text(" with ", cluster.world().trace.node(expert.lease->node.str()),
                  expert.lease->lapsed ? " (lapsed)" : "");
  }
  return out;
}

void Aftermath::before_healing() {
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    DaemonMachine& daemon = cluster_.daemon(i);
    if (daemon.core() == nullptr || !daemon.disk().kept.is_full) continue;
    const std::vector<daemon::SlotView> slots = daemon.core()->slots();
    if (std::ranges::any_of(slots, [](const auto& slot) { return slot.storing; }))
      stuck_.push_back({&daemon, daemon.life(), daemon.snapshots_stored()});
  }
}

void Aftermath::begin() {
  healed_ = kept_since_ = copied_ = cluster_.world().timeline.now();
  look();
}

void Aftermath::look() {
  if (is_over_) return;
  check_commits();
  check_connections();
  check_disks();
  check_turns();
  check_copies();
  cluster_.world().timeline.after(kEvery, [this] { look(); });
}

void Aftermath::check_commits() {
  if (cluster_.is_done()) return;
  const Duration wait =
      cluster_.world().timeline.now() - std::max(healed_, cluster_.invariants().last_commit());
  longest_wait_ = std::max(longest_wait_, wait);
  if (wait > kNextCommit) {
    cluster_.world().violated(
        "L5", "everything works and nothing is committed: " + where_it_stands(cluster_));
  }
}

void Aftermath::check_connections() {
  const Duration now = cluster_.world().timeline.now();
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    DaemonMachine& daemon = cluster_.daemon(i);
    auto& [life, since] = lives_[i];
    const coordinator::Core* core = cluster_.coordinator().core();
    const bool is_heard = (daemon.core() != nullptr && daemon.core()->connected()) ||
                          (core != nullptr && core->recalls());
    if (is_heard || !daemon.is_up() || daemon.is_paused() || cluster_.coordinator().is_paused() ||
        life != daemon.life()) {
      life = daemon.life();
      since = now;
    }
    if (now - since > kHeardAgain)
      cluster_.world().violated("L2", text(daemon.name(), " runs and has reached nobody for ",
                                           human_duration(now - since)));
  }
}

void Aftermath::check_disks() {
  if (cluster_.world().timeline.now() - healed_ < kDiskAgain) return;
  for (const Stuck& stuck : std::exchange(stuck_, {})) {
    if (stuck.daemon->life() != stuck.life || stuck.daemon->core() == nullptr ||
        stuck.daemon->is_paused())
      continue;
    const std::vector<daemon::SlotView> slots = stuck.daemon->core()->slots();
    const bool still = std::ranges::any_of(slots, [](const auto& slot) { return slot.storing; });
    if (still && stuck.daemon->snapshots_stored() == stuck.stored)
      cluster_.world().violated(
          "L6", text(stuck.daemon->name(), " has room again and does not store its checkpoint"));
  }
}

// Where an expert waits and a turn of one ahead of it is over, somebody is told
// to give way.
void Aftermath::check_turns() {
  const coordinator::Core* core = cluster_.coordinator().core();
  const Duration now = cluster_.world().timeline.now();
  if (core == nullptr || cluster_.run_state() != "running" || !is_kept_waiting(core->experts()))
    kept_since_ = now;
  if (now - kept_since_ > kTurnWait)
    cluster_.world().violated("turns",
                              "a turn is over, and nobody gives way: " + where_it_stands(cluster_));
}

// Lost copies are made again: each head is on as many machines as are wanted,
// or are there.
void Aftermath::check_copies() {
  const coordinator::Core* core = cluster_.coordinator().core();
  std::string lacking;
  for (const auto& expert :
       core == nullptr ? std::vector<coordinator::ExpertView>{} : core->experts()) {
    if (lacking.empty() && expert.head) lacking = lacks_copies(expert);
  }
  const Duration now = cluster_.world().timeline.now();
  if (lacking.empty()) copied_ = now;
  if (now - copied_ > kCopiedAgain) cluster_.world().violated("copies", lacking);
}

std::string Aftermath::lacks_copies(const coordinator::ExpertView& expert) {
  const stored::Expert* record =
      experts_.read(cluster_.coordinator().durable(), coordinator::expert_key(expert.id));
  const std::string source = expert.lease ? expert.lease->node.str()
                             : record && record->checkpoints_size() > 0
                                 ? record->checkpoints(0).node()
                                 : "";
  std::string own_host;
  std::set<std::string> hosts;
  std::set<std::string> holding;
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    const DaemonMachine& daemon = cluster_.daemon(i);
    const stored::Node* node =
        nodes_.read(cluster_.coordinator().durable(), coordinator::kNodePrefix + daemon.id().str());
    if (daemon.id().str() == source) own_host = daemon.settings().host;
    // A node that could not receive one is not asked for a while.
    const bool counts = daemon.core() != nullptr && daemon.core()->connected() && node &&
                        node->present() && !node->cordoned() && !node->draining() &&
                        std::ranges::find(expert.stalled, daemon.id()) == expert.stalled.end();
    if (!counts) continue;
    hosts.insert(daemon.settings().host);
    if (daemon.has_stored(*expert.head)) holding.insert(daemon.settings().host);
  }
  hosts.erase(own_host);
  holding.erase(own_host);
  // A key that is gone, with its disk or by being revoked, may have been of any
  // of these machines.
  const std::size_t others = own_host.empty() && !hosts.empty() ? hosts.size() - 1 : hosts.size();
  const std::size_t wanted = std::min<std::size_t>(expert.copies - 1, others);
  if (holding.size() >= wanted) return "";
  return text("expert ", expert.id.index, "'s head is held by ", holding.size(), " machines of ",
              wanted, ", beside its own and the coordinator");
}

bool Aftermath::is_kept_waiting(const std::vector<coordinator::ExpertView>& experts) {
  const auto is_held = [](const auto& expert) { return expert.lease && !expert.lease->lapsed; };
  const auto yielding = std::ranges::count_if(
      experts, [&](const auto& expert) { return is_held(expert) && expert.yields; });
  std::ptrdiff_t kept = 0;
  for (const auto& behind : experts) {
    if (is_held(behind) || behind.reserved || behind.head_step >= cluster_.steps_target()) continue;
    kept += std::ranges::any_of(experts, [&](const auto& ahead) {
      if (!is_held(ahead) || ahead.head_step < behind.head_step ||
          cluster_.invariants().gave_up(behind.id, ahead.lease->node))
        return false;
      const stored::Expert* record =
          experts_.read(cluster_.coordinator().durable(), coordinator::expert_key(ahead.id));
      if (!record || record->lease().rounds() < cluster_.options().turn_rounds) return false;
      // Half a turn's steps would do, by a speed that may be taken for twice
      // what it is. Rounds differ in length, and `keep` may keep one alone.
      Step round = cluster_.invariants().longest_round(ahead.id);
      for (const stored::Checkpoint& each : record->checkpoints())
        round = std::max(round, each.step() - each.from_step());
      const Step turn = 2 * round * cluster_.options().turn_rounds;
      return ahead.head_step >= behind.head_step + turn;
    });
  }
  return kept > 0 && yielding == 0;
}

}  // namespace skerry::simulation
