// Copies of checkpoints at nodes, beside the coordinator's disk, which holds every one: who is to hold what, what they
// report, and which commits wait for it.
//
// A node is told by its assignment which replicas it is to hold: of each expert that was placed with it, the head and the
// commit that is pending. It says of each, with every heartbeat, whether it is durable. Nothing of this is stored: after a
// start nodes are placed and heard anew.
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"
#include "coordinator/placement.h"

namespace skerry::coordinator {
namespace {

std::size_t copies_wanted(const Run& run) {
  return std::max<std::uint32_t>(run.record->spec().copies(), 1) - 1;
}

}  // namespace

std::vector<pb::Replica> Machine::replicas_of(const Node& node) const {
  std::vector<pb::Replica> replicas;
  for (const ExpertId& id : node.replicas) {
    const auto run = runs.all().find(id.run.str());
    if (run == runs.all().end()) continue;
    const Expert& expert = run->second.experts[id.index];
    const auto add = [&](pb::ObjectRef object) {
      pb::Replica& replica = replicas.emplace_back();
      replica.set_run(id.run.str());
      replica.set_expert(id.index);
      *replica.mutable_object() = std::move(object);
    };
    if (!expert.head().empty()) add(object_ref(expert.record->checkpoints(0)));
    if (expert.pending) add(expert.pending->commit.manifest());
  }
  return replicas;
}

// The node is told anew; what it said of replicas that it goes on holding stands.
void Machine::replicas_changed(Node& node) {
  roster.assignment_changed(node.record->id());
  std::map<Hash, Held> held;
  for (const pb::Replica& replica : replicas_of(node)) {
    const Hash manifest = *Hash::from_raw(replica.object().manifest());
    const auto known = node.held.find(manifest);
    held[manifest] =
        known == node.held.end() ? Held{.version = node.session->version, .moved = now.boot} : known->second;
  }
  node.held = std::move(held);
}

void Machine::replicas_changed(const Expert& expert) {
  for (const std::string& id : expert.places) replicas_changed(roster.at(id));
  if (!expert.spare.empty()) replicas_changed(roster.at(expert.spare));
}

void Machine::hear_replicas(Node& node, const pb::Heartbeat& beat) {
  if (node.held.empty()) return;
  std::map<std::string_view, const pb::ReplicaStatus*> said;
  for (const pb::ReplicaStatus& status : beat.replicas()) said[status.manifest()] = &status;
  for (auto& [manifest, held] : node.held) {
    if (beat.assignment_version() < held.version) continue;
    const auto status = said.find(manifest.view());
    const bool durable = status != said.end() && status->second->durable();
    const std::uint64_t bytes = status == said.end() ? 0 : status->second->bytes();
    if (durable != held.durable || bytes != held.bytes) held.moved = now.boot;
    if (durable && !held.durable) recount = true;
    held.durable = durable;
    held.bytes = bytes;
  }
}

// Distinct hosts whose nodes have said that it is durable, but the host of its committer and our own.
std::size_t Machine::hosts_with(const Expert& expert, const Hash& manifest,
                                const std::string& committer) const {
  std::set<std::string> hosts;
  const auto look_at = [&](const std::string& id) {
    const Node* found = roster.find(id);
    if (found == nullptr || !(found->record->present() || planted("lost_copy_counted"))) return;
    const auto held = found->held.find(manifest);
    if (held != found->held.end() && held->second.durable)
      hosts.insert(host_key(NodeId(id), found->session->host_label));
  };
  for (const std::string& id : expert.places) look_at(id);
  look_at(expert.spare);
  const Node* source = roster.find(committer);
  if (source != nullptr && !planted("committer_counted"))
    hosts.erase(host_key(NodeId(committer), source->session->host_label));
  if (!config.host_label.empty()) hosts.erase(config.host_label);
  return hosts.size();
}

// It leaves in a moment, with or without an answer, and what it commits is whole on this disk, which is a place: to wait for
// more could only lose the steps. Its copies are made afterwards.
bool Machine::waits_no_more(const Node& committer) const {
  return committer.session->self_draining &&
         now.boot - committer.session->drains_since >= config.drain_patience;
}

// How many places are still to report before this commit counts: min(wanted, available) less those that have.
std::size_t Machine::copies_lacking(const Expert& expert, const Hash& manifest,
                                    const std::string& committer) const {
  if (planted("copies_not_awaited")) return 0;
  const Node* source = roster.find(committer);
  if (source != nullptr && waits_no_more(*source)) return 0;
  const std::size_t needed = expert.places.size();
  return needed - std::min(needed, hosts_with(expert, manifest, committer));
}

// Commits that are whole here and wait for others to say the same.
void Machine::decide_waiting() {
  for (auto& [id, run] : runs.all()) {
    if (copies_wanted(run) == 0) continue;
    for (Expert& expert : run.experts) {
      if (expert.pending && objects.has(expert.pending->manifest)) commit_stored(expert);
    }
  }
}

// A node that receives nothing for long holds up no commit: it is not asked again for a while.
void Machine::give_up_stalled(Expert& expert) {
  std::erase_if(expert.stalled, [&](const auto& each) { return each.second <= now.boot; });
  std::vector<std::string> asked = expert.places;
  if (!expert.spare.empty()) asked.push_back(expert.spare);
  for (const std::string& id : asked) {
    const Node& node = roster.at(id);
    const bool is_stalled = std::ranges::any_of(node.held, [&](const auto& each) {
      const bool is_its =
          each.first.raw() == expert.head() || (expert.pending && expert.pending->manifest == each.first);
      return is_its && !each.second.durable && now.boot - each.second.moved > config.replica_patience;
    });
    if (!is_stalled || !roster.is_live(node)) continue;
    expert.stalled[id] = now.boot + config.avoid;
    events.tell("replica_stalled",
                text("it has received nothing of its copy for ", human_duration(config.replica_patience),
                     ": it is not waited for"),
                node.record->name(), &expert, expert.step());
  }
}

// Who holds what, as the schedule leaves it. What was placed stays where it is, and what was lost is placed anew.
void Machine::place_copies() {
  next_placing = now.boot + config.heartbeat;
  std::vector<PlaceableExpert> wanted;
  std::vector<Expert*> experts;
  for (auto& [id, run] : runs.all()) {
    if (copies_wanted(run) == 0) continue;
    for (Expert& expert : run.experts) {
      give_up_stalled(expert);
      PlaceableExpert& view = wanted.emplace_back();
      experts.push_back(&expert);
      view.id = expert.id();
      view.copies = copies_wanted(run);
      view.wants_spare = expert.held();
      if (expert.has_lease()) {
        view.source = NodeId(expert.record->lease().node());
      } else if (!expert.head().empty()) {
        view.source = NodeId(expert.record->checkpoints(0).node());
      }
      for (const std::string& node : expert.places) view.current.emplace_back(node);
      if (!expert.spare.empty()) view.current.emplace_back(expert.spare);
      for (const auto& [node, until] : expert.stalled) view.avoid.insert(NodeId(node));
    }
  }
  std::vector<PlaceableNode> places;
  for (const auto& [id, node] : roster.all()) {
    if (!node.is_node() || (wanted.empty() && node.replicas.empty())) continue;
    const bool leaves = node.record->revoked() || node.record->draining() || node.session->self_draining;
    const bool is_expected_back = roster.is_recovering() && roster.is_awaited(id);
    const bool may_take =
        roster.unusable_because(node).empty() || (is_expected_back && !leaves && !node.record->cordoned());
    places.push_back({.id = NodeId(id),
                      .host = node.session->host_label,
                      .may_take = may_take,
                      .may_keep = (node.record->present() && !leaves) || planted("replicas_not_restored") ||
                                  planted("lost_copy_counted"),
                      .is_spare = may_take && node.leases.size() < node.session->slots.size()});
  }
  if (places.empty()) return;
  const std::vector<Placement> placed = place(wanted, places, config.host_label, config.replicas_of_node);
  std::map<std::string, std::set<ExpertId>> of_nodes;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    Expert& expert = *experts[i];
    std::vector<std::string> chosen;
    for (const NodeId& id : placed[i].copies) chosen.push_back(id.str());
    if (chosen != expert.places) recount = true;
    expert.places = std::move(chosen);
    expert.spare = placed[i].spare ? placed[i].spare->str() : "";
    for (const std::string& id : expert.places) of_nodes[id].insert(expert.id());
    if (!expert.spare.empty()) of_nodes[expert.spare].insert(expert.id());
  }
  for (const PlaceableNode& place : places) {
    Node& node = roster.at(place.id.str());
    const std::set<ExpertId>& now_of_it = of_nodes[place.id.str()];
    if (node.replicas == now_of_it) continue;
    node.replicas = now_of_it;
    replicas_changed(node);
  }
}

// What this disk has lost comes back from nodes: from one that reported its copy durable, or from any that says it holds it.
void Machine::mend_from_copies() {
  std::erase_if(mending, [&](const auto& each) {
    return !is_sought(each.first) || now.boot - each.second > config.replica_patience;
  });
  for (const Hash& manifest : objects.damaged()) {
    for (const auto& [id, node] : roster.all()) {
      const auto held = node.held.find(manifest);
      if (held == node.held.end() || !held->second.durable || !roster.is_live(node)) continue;
      mend(manifest, {NodeId(id)});
      break;
    }
  }
}

void Machine::held_elsewhere(const HeldElsewhere& event) { mend(event.manifest, event.nodes); }

void Machine::mend(const Hash& manifest, const std::vector<NodeId>& from) {
  if (from.empty() || !is_sought(manifest) || mending.contains(manifest)) return;
  const std::string raw = manifest.raw();
  const auto ask = [&](const pb::ObjectRef& object, Purpose purpose) {
    if (object.manifest() != raw || !mending.emplace(manifest, now.boot).second) return;
    for (const NodeId& node : from) {
      effects.fetches.push_back(
          {manifest, object.manifest_bytes(), object.bytes(), node, purpose, object.name()});
    }
  };
  runs.visit_checkpoints([&](const Run&, const Expert&, const stored::Checkpoint& checkpoint) {
    ask(object_ref(checkpoint), Purpose::kCheckpoint);
  });
  datasets.visit_files(
      [&](const std::string&, const pb::DatasetFile& file) { ask(file.object(), Purpose::kFile); });
  visit_sought(ask);
}

std::vector<Hash> Machine::lost_objects() const {
  std::vector<Hash> unasked;
  for (const Hash& manifest : objects.damaged()) {
    if (!mending.contains(manifest)) unasked.push_back(manifest);
  }
  visit_sought([&](const pb::ObjectRef& object, Purpose) {
    const Hash manifest = *Hash::from_raw(object.manifest());
    if (!objects.has(manifest) && !mending.contains(manifest)) unasked.push_back(manifest);
  });
  return unasked;
}

std::vector<std::string> Machine::copies_why(const Run& run, const Expert& expert) const {
  std::vector<std::string> reasons;
  if (copies_wanted(run) == 0) return reasons;
  const std::string whose = text("expert ", expert.record->index(), ": ");
  if (expert.places.size() < copies_wanted(run)) {
    const std::size_t places = expert.places.size() + 1;
    reasons.push_back(text(whose, "checkpoints are kept in ", places, places == 1 ? " place" : " places",
                           ", not ", run.record->spec().copies(), ": no other machine is free to hold one"));
  }
  if (!expert.pending || !objects.has(expert.pending->manifest)) return reasons;
  std::string lacking;
  for (const std::string& id : expert.places) {
    const Node& node = roster.at(id);
    const auto held = node.held.find(expert.pending->manifest);
    if (held == node.held.end() || held->second.durable) continue;
    lacking += text(lacking.empty() ? "" : ", ", node.record->name(), " (", human_bytes(held->second.bytes),
                    " of ", human_bytes(expert.pending->commit.manifest().bytes()), ")");
  }
  if (!lacking.empty())
    reasons.push_back(text(whose, "the commit of step ", expert.pending->commit.to_step(),
                           " waits until it is durable at ", lacking));
  return reasons;
}

std::uint32_t Machine::places_with_head(const Expert& expert) const {
  if (expert.head().empty()) return 0;
  const stored::Checkpoint& head = expert.record->checkpoints(0);
  const Hash manifest = *Hash::from_raw(head.manifest());
  return static_cast<std::uint32_t>(hosts_with(expert, manifest, head.node()) +
                                    (objects.has(manifest) ? 1 : 0));
}

Step Machine::unanchored_steps(const Expert& expert) const {
  for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
    if (objects.has(checkpoint.manifest())) return expert.step() - checkpoint.step();
  }
  return expert.step();
}

}  // namespace skerry::coordinator
