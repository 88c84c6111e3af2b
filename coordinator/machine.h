// The core's inside: its state and the handlers, each group in a source file of its own. Private to this folder.
//
// Handlers change records in memory, mark them dirty and add effects; finish() turns what is dirty into one batch and
// orders the sends behind it. Nothing here does I/O.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "coordinator/leases.h"

namespace skerry::coordinator {

using AdminResult = Result<pb::AdminReply>;

// The answer to an admin's request that says no more than that it was done.
inline pb::AdminReply acknowledged() {
  pb::AdminReply reply;
  reply.mutable_ack();
  return reply;
}

struct Machine : Context {
  using Context::Context;

  Runs runs{*this};
  EventLog events{*this, runs};
  Roster roster{*this, events, runs};
  Objects objects{*this, events, roster.peers()};
  Datasets datasets{*this, events, runs, objects};
  Copies copies{*this, events, runs, roster, objects};
  Adoptions adoptions{*this, events, runs, roster, objects, datasets, copies};
  Commits commits{*this, events, runs, roster, objects, datasets, copies, adoptions};
  Leases leases{*this, events, runs, roster, datasets, copies, commits};
  Duration started{};
  std::int64_t started_unix_ms = 0;
  Duration next_forgetting{};
  Duration next_tick{};

  // core.cc
  Effects start(Now at);
  Effects step(const Event& event, Now at);
  void finish();
  void received(const Received& event);
  void dispatch(Node& node, const Received& event);
  void tick();

  // load.cc
  Result<void> load(std::span<const KeyValue> state);
  Result<void> load_entry(const KeyValue& entry);
  Result<void> check_links();

  void turn_away(const TurnedAway& event);

  void enrol(const EnrolReceived& event);
  void records_heard(const RecordsHeard& event);
  void revoke(Node& node, const std::string& reason);

  // token_admin.cc
  AdminResult token_create(const pb::TokenCreate& request);
  AdminResult token_list(const pb::ListRequest& request) const;
  AdminResult token_revoke(const pb::Named& request);

  // sessions.cc
  void hello(Node& node, const Received& event);
  void heartbeat(Node& node, const Received& event);
  void greet_node(Node& node, const pb::Hello& hello);
  // adopt.cc
  AdminResult run_adopt(const pb::RunAdopt& request);
  void take_dataset(const pb::DatasetAdd& content);
  void adopt(const Adoption& adoption);
  Expert adopted_expert(const Adoption& adoption, std::uint32_t index);
  void tell_head(const Adoption& adoption, const Expert& expert);

  pb::RunInfo orphan_info(const pb::RunRecord& orphan) const;

  // node_admin.cc
  Result<Node*> find_node(const std::string& name);
  AdminResult node_list(const pb::ListRequest& request) const;
  AdminResult node_show(const pb::Named& request);
  AdminResult node_cordon(const pb::Named& request, bool cordoned);
  AdminResult node_drain(const pb::Named& request);
  AdminResult node_evict(const pb::Named& request);
  AdminResult node_revoke(const pb::Named& request);
  AdminResult node_logs(const pb::Named& request);
  pb::NodeInfo node_info(const Node& node) const;

  // inventory.cc
  void object_stored(const ObjectStored& event);
  void object_failed(const ObjectFailed& event);
  void object_damaged(const ObjectDamaged& event);
  void try_commit(Expert& expert);
  void decide_waiting();
  void repair(const Hash& manifest, const std::vector<NodeId>& from);
  void tell_of_object(const std::string& kind, const Hash& manifest);
  std::vector<std::string> damages(const Run& run) const;
  std::vector<NamedObject> named_objects() const;
  bool may_read(const Node& node, const Hash& manifest) const;
  std::vector<Hash> lost_objects() const;

  std::string trouble_of(const Hash& manifest) const;

  // object_admin.cc
  std::string object_state(const Hash& manifest) const;
  std::map<Hash, pb::ObjectInfo> object_infos(const Run* only) const;
  AdminResult object_list(const pb::ObjectList& request);

  // transfers.cc
  void transferred(const Node& node, const pb::Transfer& transfer);
  void peer_faulted(const Node& node, const pb::PeerFault& fault);
  // An object as people know it, and the expert whose checkpoint it is.
  struct Known {
    std::string what;
    const Expert* expert = nullptr;
    std::uint64_t step = 0;
  };
  Known known_object(const std::string& manifest) const;
  std::string name_of_peer(const std::string& peer) const;

  // dataset_admin.cc
  AdminResult dataset_add(const pb::DatasetAdd& request, const Node& person);
  AdminResult dataset_list(const pb::ListRequest& request) const;
  AdminResult dataset_show(const pb::Named& request) const;
  AdminResult dataset_delete(const pb::Named& request);
  // run_create.cc
  AdminResult run_create(const pb::RunCreate& request);
  Result<void> check_init(const pb::RunSpec& spec) const;

  // run_admin.cc
  Result<Run*> find_run(const std::string& name);
  AdminResult run_pause(const pb::Named& request);
  AdminResult run_resume(const pb::Named& request);
  AdminResult run_stop(const pb::Named& request);
  AdminResult run_extend(const pb::RunExtend& request);
  AdminResult run_expert(const pb::RunExpert& request);
  AdminResult run_delete(const pb::Named& request);

  // run_info.cc
  pb::RunInfo run_info(const Run& run, bool with_experts) const;
  pb::ExpertInfo expert_info(const Run& run, const Expert& expert) const;
  const pb::SlotStatus* status_of(const Expert& expert) const;
  AdminResult run_list(const pb::ListRequest& request) const;
  AdminResult run_why(const pb::Named& request);
  AdminResult shard_list(const pb::Named& request);
  AdminResult ensemble(const pb::Named& request);
  AdminResult status() const;

  // facts.cc
  pb::EnsembleReply about(const Run& run) const;
  std::vector<RunFacts> run_facts() const;
  std::vector<NodeId> revoked() const;

  // admin.cc
  void admin(Node& person, const Received& event);
  AdminResult admin_request(Node& person, const pb::AdminRequest& request);
};

// A list in pages of at most `limit` items and `bytes`, keyed by name: calls add(item) → size, from the first key
// after `after`; returns the last key added where there is more, else "".
template <class Map, class Add>
std::string page(const Map& items, const pb::ListRequest& request, std::size_t most, std::size_t bytes,
                 Add add) {
  const std::size_t limit = request.limit() == 0 ? most : std::min<std::size_t>(request.limit(), most);
  std::size_t used = 0;
  std::size_t count = 0;
  std::string last;
  for (auto item = items.upper_bound(request.after()); item != items.end(); ++item) {
    if (count >= limit || used >= bytes) return last;
    used += add(item->second);
    last = item->first;
    ++count;
  }
  return "";
}

}  // namespace skerry::coordinator
