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

#include "coordinator/datasets.h"
#include "coordinator/events.h"
#include "coordinator/objects.h"
#include "coordinator/roster.h"
#include "coordinator/runs.h"
#include "coordinator/scheduler.h"

namespace skerry::coordinator {

// What a run file may say, but for its dataset and model.
Result<void> check_spec(const pb::RunSpec& spec);

// An expert that lost its holder in this step; told once the schedule says what comes next.
struct Lost {
  ExpertId expert;
  std::string kind;
  std::string node;
  std::string reason;
};

// An orphan that is taken back from records, as long as somebody asks for it.
struct Adoption {
  pb::RunRecord about;
  std::optional<std::vector<RunRecords::Head>> heads;
  std::optional<pb::EnsembleReply> specification;
  Duration told{};  // when the heads were last others than before
  Duration asked{};
};

// Heads from which an expert of an adopted run may go on. Pointers into the adoption.
struct HeadCandidates {
  std::vector<const RunRecords::Head*>
      later;  // than the acknowledged one, or where there is none, as nodes say
  const RunRecords::Head* acknowledged = nullptr;
  std::vector<const RunRecords::Head*> older;  // only if a person does without the others
};

struct HeadChoice {
  const RunRecords::Head* head = nullptr;  // null: the expert begins anew
  std::vector<std::string> missing;        // a sentence for each better one that is not here
};

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
  std::map<Hash, Duration> mending;  // of the damaged: asked of a node that has it, since when

  Duration started{};
  std::int64_t started_unix_ms = 0;
  std::map<std::string, pb::RunRecord> orphans;  // runs that only records know, by id
  std::map<std::string, Adoption> adoptions;     // of them, by id
  Duration lagged_until{};
  std::deque<Duration> early_ends;
  Duration settle_after{};  // not before
  bool recount = false;     // a commit that waits for copies may have them
  Duration next_placing{};
  Duration next_forgetting{};
  Duration next_tick{};

  // Of the step under way.
  std::set<ExpertId> regranted;
  std::vector<Lost> lost;

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
  void adopt_from(const RunRecords& event);
  void specification_read(const FileRead& event);
  void forget_adoptions();
  // A part that an adoption waits for, or a file of a dataset that a run uses and that is not whole; none: neither.
  std::optional<pb::ObjectRef> sought_object(const Hash& manifest) const;
  void visit_sought(const std::function<void(const pb::ObjectRef&, Purpose)>& visit) const;
  std::vector<std::string> missing_parts(const Adoption& adoption) const;
  void unclaim(const Adoption& adoption);
  HeadCandidates candidates(const Adoption& adoption, std::uint32_t index) const;
  std::vector<const RunRecords::Head*> sought_heads(const Adoption& adoption, std::uint32_t index) const;
  HeadChoice choose_head(const Adoption& adoption, std::uint32_t index) const;
  bool is_refuted(const Adoption& adoption, const RunRecords::Head& head,
                  const RunRecords::Head* acknowledged) const;
  std::string wrong_head(const Adoption& adoption, const RunRecords::Head& head) const;
  Result<void> check_specification(const Adoption& adoption) const;
  Result<void> check_content(const pb::DatasetAdd& content, const std::string& name) const;
  void take_dataset(const pb::DatasetAdd& content);
  void adopt(const Adoption& adoption);
  Expert adopted_expert(const Adoption& adoption, std::uint32_t index);
  std::string name_of_author(const NodeId& author) const;
  void tell_head(const Adoption& adoption, const Expert& expert);

  // orphans.cc
  void hear_orphans(const std::vector<pb::RunRecord>& runs);
  Result<const pb::RunRecord*> find_orphan(const std::string& name) const;  // null: none
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

  // leases.cc
  bool holds(const Expert& expert, const Node& node, std::uint64_t epoch) const;
  void resume(Expert& expert, Node& node);
  void lapse(Expert& expert, const std::string& reason);
  void release(Expert& expert, const std::string& kind, const std::string& reason);
  void release_all(Node& node, const std::string& kind, const std::string& reason, bool raise_epoch);
  void raise_epoch(Expert& expert);
  void end_leases_of_old_generations();
  void go_beyond(const std::string& node, std::uint64_t seen);
  void expire();
  void end_early();
  std::size_t early_ends_left();
  void overtake(Expert& expert);
  void tell_overtaken(const Node& node, const pb::SlotStatus& status);
  pb::Assignment assignment_of(const Node& node) const;
  void get_assignment(Node& node, const Received& event);

  // settle.cc
  void settle();
  void grant(Expert& expert, const Grant& granted);
  void apply_yields(const Schedule& plan);
  void update_run_state(Run& run);
  Schedule plan() const;
  void tell_lost();

  // commits.cc
  void commit(Node& node, const Received& event);
  std::optional<pb::CommitReply> decide(Expert& expert, const Node& node, const pb::Commit& commit);
  std::optional<Error> fetch_commit(Expert& expert, const Node& node, const Received& event);
  pb::CommitReply verdict(const Expert& expert, const pb::Commit& commit, pb::CommitStatus status,
                          const std::string& reason) const;
  std::string mismatch(const Expert& expert, const pb::Commit& commit, const StoredObject& object) const;
  void accept(Expert& expert, const Node& node, const pb::Commit& commit, const StoredObject& object);
  void set_pending(Expert& expert, std::optional<PendingCommit> pending);
  void drop_pending(Expert& expert);
  void commit_stored(Expert& expert);
  void tell_fenced(Expert& expert, const Node& node, std::uint64_t epoch, Step step,
                   const std::string& reason);
  void refuse(Expert& expert, const Node& node, const std::string& reason);

  // copies.cc
  std::vector<pb::Replica> replicas_of(const Node& node) const;
  void replicas_changed(Node& node);
  void replicas_changed(const Expert& expert);
  void hear_replicas(Node& node, const pb::Heartbeat& beat);
  std::size_t hosts_with(const Expert& expert, const Hash& manifest, const std::string& committer) const;
  bool waits_no_more(const Node& committer) const;
  std::size_t copies_lacking(const Expert& expert, const Hash& manifest, const std::string& committer) const;
  void decide_waiting();
  void give_up_stalled(Expert& expert);
  void place_copies();
  void mend_from_copies();
  void held_elsewhere(const HeldElsewhere& event);
  void mend(const Hash& manifest, const std::vector<NodeId>& nodes);
  std::vector<std::string> copies_why(const Run& run, const Expert& expert) const;
  std::uint32_t places_with_head(const Expert& expert) const;
  Step unanchored_steps(const Expert& expert) const;

  // reports.cc
  void return_lease(Node& node, const Received& event);
  void engine_report(Node& node, const Received& event);
  void node_log(Node& node, const Received& event);
  void raise_attempt(Run& run, Expert& expert, const std::string& reason);

  // inventory.cc
  void object_stored(const ObjectStored& event);
  void object_failed(const ObjectFailed& event);
  void object_damaged(const ObjectDamaged& event);
  void tell_of_object(const std::string& kind, const Hash& manifest);
  std::vector<std::string> damages(const Run& run) const;
  void cancel_fetch(const Hash& manifest);
  bool is_wanted(const Hash& manifest) const;
  bool is_sought(const Hash& manifest) const;
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
  Result<pb::ModelSpec> model_for(const pb::RunSpec& spec, const Dataset& dataset) const;
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

inline pb::ObjectRef object_ref(const stored::Checkpoint& checkpoint) {
  pb::ObjectRef ref;
  ref.set_manifest(checkpoint.manifest());
  ref.set_manifest_bytes(checkpoint.manifest_bytes());
  ref.set_bytes(checkpoint.bytes());
  return ref;
}

}  // namespace skerry::coordinator
