// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/copies.h"

#include <algorithm>

#include "base/text.h"
#include "coordinator/rooms/placement.h"

namespace skerry::coordinator {

std::size_t copies_wanted(const Run& run) {
  return std::max<std::uint32_t>(run.record->spec().copies(), 1) - 1;
}

std::vector<pb::Replica> Copies::replicas_of(const Node& node) const {
  std::vector<pb::Replica> replicas;
  for (const ExpertId& id : node.replicas->experts) {
    const auto run = runs_.all().find(id.run);
    if (run == runs_.all().end()) continue;
    const Expert& expert = run->second.experts[id.index];
    const auto add = [&](pb::ObjectRef object) {
      pb::Replica& replica = replicas.emplace_back();
      replica.set_run(id.run.str());
      replica.set_expert(id.index);
      *replica.mutable_object() = std::move(object);
    };
    if (!expert.head().empty()) add(object_ref(expert.record->checkpoints(0)));
    if (expert.commit->pending) add(expert.commit->pending->commit.manifest());
  }
  return replicas;
}

// The node is told anew; what it said of replicas that it goes on holding
// stands.
void Copies::changed(Node& node) {
  roster_.assignment_changed(node.id());
  std::map<Hash, Held> held;
  for (const pb::Replica& replica : replicas_of(node)) {
    const Hash manifest = *Hash::from_raw(replica.object().manifest());
    const auto known = node.replicas->held.find(manifest);
    held[manifest] = known == node.replicas->held.end()
                         ? Held{.version = node.session->version, .moved = now.boot}
                         : known->second;
  }
  node.replicas.edit().held = std::move(held);
}

void Copies::changed(const Expert& expert) {
  for (const NodeId& id : expert.copies->places) changed(roster_.at(id));
  if (expert.copies->spare) changed(roster_.at(*expert.copies->spare));
}

void Copies::hear(Node& node, const pb::Heartbeat& beat) {
  if (node.replicas->held.empty()) return;
  std::map<std::string_view, const pb::ReplicaStatus*> said;
  for (const pb::ReplicaStatus& status : beat.replicas()) said[status.manifest()] = &status;
  for (auto& [manifest, held] : node.replicas.edit().held) {
    if (beat.assignment_version() < held.version) continue;
    const auto status = said.find(manifest.view());
    const bool durable = status != said.end() && status->second->durable();
    const std::uint64_t bytes = status == said.end() ? 0 : status->second->bytes();
    held.has_shards = status != said.end() && status->second->has_shards();
    if (durable != held.durable || bytes != held.bytes) held.moved = now.boot;
    if (durable && !held.durable) recount_ = true;
    held.durable = durable;
    held.bytes = bytes;
  }
}

// Distinct hosts whose nodes have said that it is durable, but the host of its
// committer and our own.
std::size_t Copies::hosts_with(const Expert& expert, const Hash& manifest,
                               const NodeId& committer) const {
  std::set<std::string> hosts;
  const auto look_at = [&](const NodeId& id) {
    const Node* found = roster_.find(id);
    if (found == nullptr || !found->record->present()) return;
    const auto held = found->replicas->held.find(manifest);
    if (held != found->replicas->held.end() && held->second.durable)
      hosts.insert(host_key(id, found->session->host_label));
  };
  for (const NodeId& id : expert.copies->places) look_at(id);
  if (expert.copies->spare) look_at(*expert.copies->spare);
  const Node* source = roster_.find(committer);
  if (source != nullptr) hosts.erase(host_key(committer, source->session->host_label));
  if (!config.host_label.empty()) hosts.erase(config.host_label);
  return hosts.size();
}

// The committer leaves soon, with or without a reply. Its object is whole on
// this disk, which counts as a place, so waiting for more could only lose the
// steps. The copies are made afterwards. Of the time that a notice leaves they
// have half.
bool Copies::waits_no_more(const Node& committer) const {
  const Session& its = *committer.session;
  if (!its.self_draining) return false;
  Duration patience = config.drain_patience;
  if (its.leaves_at) patience = std::min(patience, (*its.leaves_at - its.drains_since) / 2);
  return now.boot - its.drains_since >= patience;
}

// How many places are still to report before this commit counts: min(wanted,
// available) less those that have.
std::size_t Copies::lacking(const Expert& expert, const Hash& manifest,
                            const NodeId& committer) const {
  const Node* source = roster_.find(committer);
  if (source != nullptr && waits_no_more(*source)) return 0;
  const std::size_t needed = expert.copies->places.size();
  return needed - std::min(needed, hosts_with(expert, manifest, committer));
}

// A node that receives nothing for long holds up no commit: it is not asked
// again for a while.
void Copies::give_up_stalled(Expert& expert) {
  std::erase_if(expert.copies.edit().stalled,
                [&](const auto& each) { return each.second <= now.boot; });
  std::vector<NodeId> asked = expert.copies->places;
  if (expert.copies->spare) asked.push_back(*expert.copies->spare);
  for (const NodeId& id : asked) {
    const Node& node = roster_.at(id);
    const bool is_stalled = std::ranges::any_of(node.replicas->held, [&](const auto& each) {
      const bool is_its =
          each.first.raw() == expert.head() ||
          (expert.commit->pending && expert.commit->pending->manifest == each.first);
      return is_its && !each.second.durable &&
             now.boot - each.second.moved > config.replica_patience;
    });
    if (!is_stalled || !roster_.is_live(node)) continue;
    expert.copies.edit().stalled[id] = now.boot + config.avoid;
    events_.tell(EventKind::kReplicaStalled,
                 text("it has received nothing of its copy for ",
                      human_duration(config.replica_patience), ": it is not waited for"),
                 node.record->name(), &expert, expert.step());
  }
}

std::size_t Copies::slots_held(const Node& node) const {
  std::size_t held = 0;
  for (const ExpertId& id : *node.leases) held += runs_.at(id).cards();
  return held;
}

// Who holds what, as the schedule leaves it. What was placed stays where it is,
// and what was lost is placed anew.
void Copies::place() {
  next_placing_ = now.boot + config.heartbeat;
  std::vector<PlaceableExpert> wanted;
  std::vector<Expert*> experts;
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      if (copies_wanted(run) == 0 && !expert.held()) {
        expert.copies.edit() = {.stalled = expert.copies->stalled};
        continue;
      }
      give_up_stalled(expert);
      PlaceableExpert& view = wanted.emplace_back();
      experts.push_back(&expert);
      view.id = expert.id();
      view.copies = copies_wanted(run);
      view.wants_spare = expert.held();
      if (expert.has_lease()) {
        view.source = expert.holder();
      } else if (!expert.head().empty()) {
        view.source = NodeId(expert.record->checkpoints(0).node());
      }
      // Before there is anything to hold, nodes that join later get a share.
      if (expert.has_head() || expert.commit->pending) {
        view.current = expert.copies->places;
        if (expert.copies->spare) view.current.push_back(*expert.copies->spare);
      }
      for (const auto& [node, until] : expert.copies->stalled) view.avoid.insert(node);
    }
  }
  std::vector<PlaceableNode> places;
  for (const auto& [id, node] : roster_.all()) {
    if (!node.is_node() || (wanted.empty() && node.replicas->experts.empty())) continue;
    const bool leaves = node.record->revoked() || node.record->draining() ||
                        node.session->self_draining || node.session->may_stop;
    const bool is_expected_back = roster_.is_recovering() && roster_.is_awaited(id);
    const bool may_take = roster_.unusable_because(node).empty() ||
                          (is_expected_back && !leaves && !node.record->cordoned());
    places.push_back({.id = id,
                      .host = node.session->host_label,
                      .may_take = may_take,
                      .may_keep = node.record->present() && !leaves,
                      .is_spare = may_take && slots_held(node) < node.session->slots.size()});
  }
  if (places.empty()) return;
  std::vector<Placement> placed =
      coordinator::place(wanted, places, config.host_label, config.replicas_of_node);
  std::map<NodeId, std::set<ExpertId>> of_nodes;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    Expert& expert = *experts[i];
    if (placed[i].copies != expert.copies->places) recount_ = true;
    expert.copies.edit().places = std::move(placed[i].copies);
    expert.copies.edit().spare = std::move(placed[i].spare);
    expert.copies.edit().stands_by = std::move(placed[i].stands_by);
    for (const NodeId& id : expert.copies->places) of_nodes[id].insert(expert.id());
    if (expert.copies->spare) of_nodes[*expert.copies->spare].insert(expert.id());
  }
  for (const PlaceableNode& place : places) {
    Node& node = roster_.at(place.id);
    const std::set<ExpertId>& now_of_it = of_nodes[place.id];
    if (node.replicas->experts == now_of_it) continue;
    node.replicas.edit().experts = now_of_it;
    changed(node);
  }
}

std::vector<std::string> Copies::why(const Run& run, const Expert& expert) const {
  std::vector<std::string> reasons;
  if (copies_wanted(run) == 0) return reasons;
  const std::string whose = text("expert ", expert.record->index(), ": ");
  if (expert.copies->places.size() < copies_wanted(run)) {
    const std::size_t places = expert.copies->places.size() + 1;
    reasons.push_back(text(whose, "checkpoints are kept in ", places,
                           places == 1 ? " place" : " places", ", not ",
                           run.record->spec().copies(), ": no other machine is free to hold one"));
  }
  if (!expert.commit->pending || !objects_.has(expert.commit->pending->manifest)) return reasons;
  std::string lacking;
  for (const NodeId& id : expert.copies->places) {
    const Node& node = roster_.at(id);
    const auto held = node.replicas->held.find(expert.commit->pending->manifest);
    if (held == node.replicas->held.end() || held->second.durable) continue;
    lacking += text(lacking.empty() ? "" : ", ", node.record->name(), " (",
                    human_bytes(held->second.bytes), " of ",
                    human_bytes(expert.commit->pending->commit.manifest().bytes()), ")");
  }
  if (!lacking.empty())
    reasons.push_back(text(whose, "the commit of step ", expert.commit->pending->commit.to_step(),
                           " waits until it is durable at ", lacking));
  return reasons;
}

std::uint32_t Copies::places_with_head(const Expert& expert) const {
  if (expert.head().empty()) return 0;
  const stored::Checkpoint& head = expert.record->checkpoints(0);
  const Hash manifest = *Hash::from_raw(head.manifest());
  return static_cast<std::uint32_t>(hosts_with(expert, manifest, NodeId(head.node())) +
                                    (objects_.has(manifest) ? 1 : 0));
}

Step Copies::unanchored_steps(const Expert& expert) const {
  for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
    if (objects_.has(checkpoint.manifest())) return expert.step() - checkpoint.step();
  }
  return expert.step();
}

bool Copies::rests_on(const Node& node) const {
  bool rests = false;
  const auto is_place = [&](const Expert& expert) {
    return std::ranges::find(expert.copies->places, node.id()) != expert.copies->places.end();
  };
  for (const auto& [id, run] : runs_.all()) {
    for (const Expert& expert : run.experts) rests |= expert.commit->pending && is_place(expert);
  }
  runs_.visit_checkpoints(
      [&](const Run& run, const Expert& expert, const stored::Checkpoint& checkpoint) {
        if (expert.is_removed() || checkpoint.step() != expert.step()) return;
        const Hash head = *Hash::from_raw(checkpoint.manifest());
        const auto held = node.replicas->held.find(head);
        const bool is_here = (held != node.replicas->held.end() && held->second.durable) ||
                             checkpoint.node() == node.id().str();
        if (!is_here && !is_place(expert)) return;
        std::set<std::string> hosts;
        for (const auto& [id, other] : roster_.all()) {
          const auto its = other.replicas->held.find(head);
          const bool has = its != other.replicas->held.end() && its->second.durable;
          if (has && other.record->present() && !other.session->may_stop)
            hosts.insert(host_key(id, other.session->host_label));
        }
        hosts.erase(host_key(node.id(), node.session->host_label));
        if (!config.host_label.empty()) hosts.erase(config.host_label);
        const std::size_t wanted = copies_wanted(run);
        rests |= hosts.size() < (objects_.has(head) ? wanted : std::max<std::size_t>(wanted, 1));
      });
  return rests;
}

void Copies::restart(Node& node) {
  for (auto& [manifest, held] : node.replicas.edit().held)
    held = {.version = held.version, .moved = now.boot};
}

void Copies::excuse(Duration lag) {
  for (auto& [id, node] : roster_.all()) {
    for (auto& [manifest, held] : node.replicas.edit().held)
      held.moved = std::min(now.boot, held.moved + lag);
  }
}

void Copies::tick() {
  // Else who stands by for a lost node would be forgotten before the schedule
  // asks for it.
  if (now.boot >= next_placing_ && !context.must_reschedule) place();
  recount_ = recount_ || std::ranges::any_of(roster_.all(), [&](const auto& node) {
               return !node.second.leases->empty() && waits_no_more(node.second);
             });
}

std::vector<NodeId> Copies::holder_of(const Hash& manifest) const {
  for (const auto& [id, node] : roster_.all()) {
    const auto held = node.replicas->held.find(manifest);
    if (held != node.replicas->held.end() && held->second.durable && roster_.is_live(node))
      return {id};
  }
  return {};
}

void Copies::repair(const pb::ObjectRef& object, Purpose purpose, const std::vector<NodeId>& from) {
  const Hash manifest = *Hash::from_raw(object.manifest());
  if (!repairs_.emplace(manifest, now.boot).second) return;
  for (const NodeId& node : from) {
    effects.fetches.push_back(
        {manifest, object.manifest_bytes(), object.bytes(), node, purpose, object.name()});
  }
}

void Copies::forget_repairs(const Objects::IsWanted& is_sought) {
  std::erase_if(repairs_, [&](const auto& each) {
    return !is_sought(each.first) || now.boot - each.second > config.replica_patience;
  });
}

}  // namespace skerry::coordinator
