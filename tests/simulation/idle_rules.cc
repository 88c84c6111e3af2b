// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/idle_rules.h"

#include <algorithm>

#include "base/text.h"
#include "tests/simulation/durable.h"

namespace skerry::simulation {
namespace {

constexpr std::uint64_t kLeast = 800'000'000;  // bytes of a card, what every job needs

}  // namespace

void IdleRules::coordinator_started(const coordinator::Core& core, const Durable& durable) {
  nodes_.clear();
  views_.clear();
  runs_.clear();
  each<stored::Run>(durable, coordinator::kRunPrefix,
                    [&](const stored::Run& run) { runs_[RunId(run.id())] = run; });
  for (const coordinator::ExpertView& view : core.experts()) views_[view.id] = view;
}

void IdleRules::coordinator_stepped(const CoordinatorStep& step) {
  const auto* received =
      step.event == nullptr ? nullptr : std::get_if<coordinator::Received>(step.event);
  if (received != nullptr) take_word(step, *received);
  for (const coordinator::Write& write : step.effects.batch.writes) {
    if (!write.key.starts_with(coordinator::kRunPrefix)) continue;
    const RunId id(write.key.substr(std::string_view(coordinator::kRunPrefix).size()));
    stored::Run run;
    if (!write.value) runs_.erase(id);
    if (write.value && run.ParseFromString(*write.value)) runs_[id] = std::move(run);
  }
  for (const coordinator::ExpertView& now : step.experts) {
    coordinator::ExpertView& before = views_[now.id];
    if (now.head && now.head != before.head && before.lease)
      committers_[*now.head] = before.lease->node;
    before = now;
  }
}

void IdleRules::take_word(const CoordinatorStep& step, const coordinator::Received& event) {
  const pb::ControlRequest& request = event.request;
  const std::optional<NodeId> id = step.core.node_of_key(event.key);
  if (!id || (!request.has_hello() && !request.has_heartbeat())) return;
  const auto answer = std::ranges::find_if(step.effects.sends, [&](const coordinator::Send& send) {
    const auto* reply = std::get_if<pb::ControlReply>(&send.message);
    return reply != nullptr && send.connection == event.connection && !reply->has_error();
  });
  if (answer == step.effects.sends.end()) return;
  Node& node = nodes_[*id];
  if (request.has_hello()) {
    if (request.hello().incarnation() != node.incarnation)
      node = {.incarnation = request.hello().incarnation()};
    node.host = request.hello().host_label();
    return;
  }
  const pb::Heartbeat& beat = request.heartbeat();
  node.may_stop = node.may_stop && beat.idle();
  node.lost_card = std::ranges::any_of(
      beat.slots(), [](const auto& slot) { return slot.phase() == pb::SLOT_FAILED; });
  node.held.clear();
  for (const pb::ReplicaStatus& replica : beat.replicas()) {
    if (replica.durable()) node.held.insert(replica.manifest());
  }
  if (!std::get<pb::ControlReply>(answer->message).heartbeat().may_stop()) return;
  node.may_stop = true;
  let_stop(*id, step);
}

// `views_` are what the last schedule saw.
void IdleRules::let_stop(const NodeId& id, const CoordinatorStep& step) {
  const auto memory = world_.memory_bytes.find(id);
  const bool fits = memory != world_.memory_bytes.end() && memory->second >= kLeast;
  for (const auto& [expert, view] : views_) {
    if (view.lease && view.lease->node == id)
      world_.violated("idle", text(id, " may stop, and holds ", expert));
    if (fits && !nodes_[id].lost_card && waits(view))
      world_.violated("idle", text(id, " may stop, and ", expert, " waits for a slot"));
  }
  for (const coordinator::ExpertView& now : step.experts) {
    if (rests_on(id, now))
      world_.violated("idle",
                      text(id, " may stop, and ", now.id, " has too few copies without it"));
  }
}

bool IdleRules::waits(const coordinator::ExpertView& expert) const {
  const auto run = runs_.find(expert.id.run);
  if (expert.lease || expert.reserved || run == runs_.end()) return false;
  const pb::RunSpec& spec = run->second.spec();
  const bool is_bound = spec.budget_dollars() > 0 || spec.budget_dollars_per_hour() > 0 ||
                        spec.max_node_price() > 0 || spec.cards() == "same" ||
                        run->second.too_small_size() > 0;
  return run->second.wanted() == stored::WANTED_ACTIVE && !is_bound &&
         expert.head_step < run->second.steps_target();
}

// A copy at a node that may stop counts no more.
bool IdleRules::rests_on(const NodeId& id, const coordinator::ExpertView& expert) const {
  if (!expert.head || expert.copies < 2 || !runs_.contains(expert.id.run)) return false;
  const Node& node = nodes_.at(id);
  const auto committer = committers_.find(*expert.head);
  const bool is_place = std::ranges::find(expert.places, id) != expert.places.end();
  if (!(is_place && node.held.contains(expert.head->raw())) &&
      (committer == committers_.end() || committer->second != id))
    return false;
  std::set<std::string> hosts;
  for (const auto& [other, its] : nodes_) {
    if (!its.may_stop && its.host != node.host && its.held.contains(expert.head->raw()))
      hosts.insert(its.host);
  }
  return hosts.size() + 1 < expert.copies;
}

void IdleRules::daemon_stepped(const DaemonStep& step) {
  Daemon& its = daemons_[step.name];
  const bool works = std::ranges::any_of(step.slots, &daemon::SlotView::has_lease);
  if (works) its.has_run = false;
  if (std::holds_alternative<daemon::IdleExecEnded>(step.event)) its.runs = false;
  if (step.effects.idle_exec == daemon::IdleExecOrder::kStart) {
    if (std::exchange(its.has_run, true))
      world_.violated("idle", step.name + " runs its --idle-exec again, without work between");
    its.runs = true;
  }
  if (its.runs && works)
    world_.violated("idle", step.name + " has a lease while its --idle-exec runs");
}

}  // namespace skerry::simulation
