// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/invariants.h"

#include <algorithm>

#include "base/text.h"
#include "protocol/limits.h"
#include "tests/simulation/fake_engine.h"

namespace skerry::simulation {
namespace {

// From then on a commit of a node that goes away may wait for nobody: ten
// seconds, less what clocks may differ by.
constexpr Duration kLeavesFor = std::chrono::seconds(8);

bool same_lease(const coordinator::LeaseView& a, const coordinator::LeaseView& b) {
  return a.node == b.node && a.slot == b.slot && a.incarnation == b.incarnation;
}

std::string raw(const std::optional<Hash>& hash) { return hash ? hash->raw() : ""; }

}  // namespace

void Invariants::violated(const std::string& id, const std::string& what) {
  violations_.push_back({id, world_.trace.readable(what), world_.timeline.now()});
  world_.trace.line(
      [&] { return text("*** ", id, " is violated: ", world_.trace.readable(what)); });
}

const std::string& Invariants::node_of(const std::string& key) const {
  static const std::string kNobody;
  const auto found = node_keys_.find(key);
  return found == node_keys_.end() ? kNobody : found->second;
}

// ---- The coordinator's state, step by step ----

Step Invariants::longest_round(const ExpertId& expert) const {
  const auto found = experts_.find(expert);
  if (found == experts_.end()) return 0;
  const std::vector<Head>& history = found->second.history;
  Step longest = 0;
  for (std::size_t i = history.size(); i-- > 1 && history[i].node == history.back().node;)
    longest = std::max(longest, history[i].step - std::min(history[i].step, history[i - 1].step));
  return longest;
}

void Invariants::coordinator_stepped(const CoordinatorStep& step) {
  const std::string wrong = disk_.stepped(step.event, step.effects);
  fail_if(!wrong.empty(), "events", wrong);
  note_versions(step);
  if (const auto* received =
          step.event == nullptr ? nullptr : std::get_if<coordinator::Received>(step.event))
    hear_holdings(*received, step.effects);
  look_at_writes(step);
  if (step.event != nullptr && std::holds_alternative<coordinator::Persisted>(*step.event)) {
    const std::size_t events = disk_.events();
    fail_if(events > world_.event_limit, "S15", "the event log holds ", events, " events");
    const auto [of_node, node] = disk_.most_events_of_a_node();
    fail_if(of_node > world_.node_event_limit, "S15", "the event log holds ", of_node,
            " events of ", node);
  }
  check_recall(step);
  if (const auto* received = std::get_if<coordinator::Received>(step.event)) {
    hear_generation(*received, step.core);
    hear(*received, step.experts);
  }
  granted_.clear();
  const bool is_tick =
      step.event != nullptr && std::holds_alternative<coordinator::Tick>(*step.event);
  for (const coordinator::ExpertView& view : step.experts) look_at(view, is_tick);
  if (!granted_.empty()) check_order(step.experts);
}

// A version is told once the batch that it was made in, or the last one before,
// is durable.
void Invariants::note_versions(const CoordinatorStep& step) {
  if (step.effects.batch.number != 0) last_batch_ = step.effects.batch.number;
  const auto* persisted =
      step.event == nullptr ? nullptr : std::get_if<coordinator::Persisted>(step.event);
  if (persisted != nullptr) persisted_ = std::max(persisted_, persisted->batch);
  const std::uint64_t version = step.core.last_version();
  if (version > (made_.empty() ? durable_version_ : made_.back().version))
    made_.push_back({version, last_batch_});
  for (; !made_.empty() && made_.front().batch <= persisted_; made_.pop_front())
    durable_version_ = made_.front().version;
}

// The coordinator takes a process for a node's where it answers its Hello; that
// of another process counts no more.
void Invariants::hear_holdings(const coordinator::Received& event,
                               const coordinator::Effects& effects) {
  const pb::ControlRequest& request = event.request;
  if (!request.has_hello() && !request.has_heartbeat()) return;
  const bool is_answered = std::ranges::any_of(effects.sends, [&](const coordinator::Send& send) {
    const auto* reply = std::get_if<pb::ControlReply>(&send.message);
    return reply != nullptr && send.connection == event.connection && !reply->has_error();
  });
  if (!is_answered) return;
  Holdings& holdings = holdings_[node_of(event.key)];
  if (request.has_hello() && request.hello().incarnation() != holdings.incarnation)
    holdings = {.incarnation = request.hello().incarnation()};
  const pb::Heartbeat& beat = request.heartbeat();
  if (!request.has_heartbeat() || beat.incarnation() != holdings.incarnation ||
      beat.sequence() <= holdings.sequence)
    return;
  holdings.sequence = beat.sequence();
  holdings.manifests.clear();
  for (const pb::ReplicaStatus& replica : beat.replicas()) {
    if (replica.durable()) holdings.manifests.insert(replica.manifest());
  }
}

void Invariants::look_at_writes(const CoordinatorStep& step) {
  for (const coordinator::Write& write : step.effects.batch.writes) {
    if (!write.value) continue;
    if (write.key.starts_with(coordinator::kNodePrefix)) {
      stored::Node node;
      if (node.ParseFromString(*write.value)) holdings_[node.id()].is_lost = !node.present();
    } else if (write.key.starts_with(coordinator::kRunPrefix)) {
      stored::Run run;
      if (run.ParseFromString(*write.value)) check_attempts(run, step.experts);
    }
  }
}

void Invariants::check_attempts(const stored::Run& run,
                                const std::vector<coordinator::ExpertView>& experts) {
  if (run.wanted() != stored::WANTED_FAILED) {
    failed_runs_.erase(run.id());
    return;
  }
  if (!failed_runs_.insert(run.id()).second) return;
  const bool has_used_all =
      std::ranges::any_of(experts, [&](const coordinator::ExpertView& expert) {
        const std::uint32_t at_commit =
            expert.head ? world_.library.at(*expert.head).facts.attempt : 0;
        return expert.id.run.str() == run.id() && expert.attempt - at_commit >= world_.attempts;
      });
  fail_if(!has_used_all, "attempts", "the run fails, and no expert used its ", world_.attempts,
          " attempts since its last commit: ", run.reason());
}

// Who has the most left goes first, but a slot that is kept for an expert goes
// to that one.
void Invariants::check_order(const std::vector<coordinator::ExpertView>& experts) {
  for (const coordinator::ExpertView* granted : granted_) {
    if (granted->lease->kept) continue;
    for (const coordinator::ExpertView& other : experts) {
      const bool waits = (!other.lease || other.lease->lapsed) && !other.reserved;
      if (!waits || other.id.run != granted->id.run || other.head_step >= granted->head_step ||
          gave_up(other.id, granted->lease->node))
        continue;
      violated("order", text(granted->id, " of step ", granted->head_step, " is given to ",
                             granted->lease->node, ", and ", other.id, " of step ", other.head_step,
                             " waits"));
    }
  }
}

void Invariants::revocation_acknowledged(const std::string& key, bool overtaken) {
  revoked_.insert(key);
  if (overtaken) forgotten_[key] = {};
}

// What a record says that the coordinator has heard holds from then on. What
// one of those held that it asked, it knows by the end of asking.
void Invariants::check_recall(const CoordinatorStep& step) {
  if (const auto* heard = std::get_if<coordinator::RecordsReceived>(step.event)) {
    for (const NodeId& node : heard->revoked) {
      std::erase_if(forgotten_, [&](const auto& each) {
        if (node_of(each.first) != node.str()) return false;
        brought_back_.insert(each.first);
        return true;
      });
    }
    recalled_.insert(heard->recalled.begin(), heard->recalled.end());
  }
  const bool ends = std::exchange(recalls_, step.core.recalls()) && !recalls_;
  if (!ends) return;
  for (const auto& [key, holders] : forgotten_) {
    for (const auto& [node, name] : holders) {
      fail_if(recalled_.contains(node), "S14", "the restored coordinator has asked ", node,
              ", which held the revocation of ", node_of(key), ", and does not know it");
    }
  }
}

// Of a node that it knows. It believes generations within a bound, which these
// runs do not reach.
void Invariants::hear_generation(const coordinator::Received& event,
                                 const coordinator::Core& core) {
  constexpr std::uint64_t kBelieved = 50;
  const std::uint64_t seen = event.request.hello().generation();
  if (event.request.has_hello() && core.node_of_key(event.key) && seen < kBelieved)
    heard_generation_ = std::max(heard_generation_, seen);
}

void Invariants::hear(const coordinator::Received& event,
                      const std::vector<coordinator::ExpertView>& experts) {
  const pb::ControlRequest& request = event.request;
  ExpertId about;
  const auto speaks_of = [&](const auto& word) { about = {RunId(word.run()), word.expert()}; };
  const auto gives_up = [&] { gave_up_.insert({about, NodeId(node_of(event.key))}); };
  if (request.has_commit()) {
    speaks_of(request.commit());
    senders_[request.commit().manifest().manifest()].insert(event.key);
  }
  if (request.has_return_lease()) {
    speaks_of(request.return_lease());
    gives_up();
  }
  if (request.has_engine_report()) {
    speaks_of(request.engine_report());
    if (request.engine_report().gives_up()) gives_up();
  }
  if (const pb::Heartbeat& beat = request.heartbeat(); request.has_heartbeat()) {
    Beat& last = beats_[node_of(event.key)][beat.incarnation()];
    if (beat.sequence() > last.sequence) {  // a late one says what was
      last.sequence = beat.sequence();
      const bool drains = beat.draining() || beat.has_leaves_in_ms();
      if (!drains) last.draining_since.reset();
      if (drains && !last.draining_since) last.draining_since = world_.timeline.now();
      last.patience = kLeavesFor;
      if (drains && beat.has_leaves_in_ms()) {
        const Duration left = world_.timeline.now() - *last.draining_since +
                              std::chrono::milliseconds(beat.leaves_in_ms());
        last.patience = std::min(kLeavesFor, left * 2 / 5);  // half, by clocks that drift
      }
    }
  }
  for (const coordinator::ExpertView& view : experts) {
    if (view.id == about) check_word(event, view);
  }
}

// What a node says of an expert that another holds changes nothing for the
// other.
void Invariants::check_word(const coordinator::Received& event,
                            const coordinator::ExpertView& now) {
  const Expert& expert = experts_[now.id];
  const auto& before = expert.view.lease;
  if (!expert.seen || !before || before->lapsed || node_of(event.key) == before->node.str()) return;
  const bool is_same = now.lease && same_lease(*now.lease, *before) &&
                       now.epoch == expert.view.epoch && now.attempt == expert.view.attempt &&
                       now.head == expert.view.head;
  fail_if(!is_same, "S12", now.id, ": a word of ", node_of(event.key), " changes what ",
          before->node, " holds");
}

void Invariants::look_at(const coordinator::ExpertView& now, bool is_tick) {
  Expert& expert = experts_[now.id];
  const coordinator::ExpertView& before = expert.view;
  if (expert.seen) {
    fail_if(now.epoch < before.epoch, "S3", now.id, ": the epoch goes back from ", before.epoch,
            " to ", now.epoch);
    const bool changed_hands = now.lease && before.lease && !same_lease(*now.lease, *before.lease);
    const bool granted = now.lease && !before.lease;
    // It came no nearer to a commit, and is avoided.
    if (is_tick && before.lease && !before.lease->lapsed && (!now.lease || changed_hands))
      gave_up_.insert({now.id, before.lease->node});
    fail_if((changed_hands || granted) && now.epoch <= before.epoch, "S1", now.id,
            ": a new holder under epoch ", now.epoch, ", which was another's");
    if (now.lease && (changed_hands || granted || now.epoch != before.epoch))
      granted_.push_back(&now);
    if (now.head != before.head) applied(expert, now);
  }
  fail_if(now.lease && is_known_lower(now.epoch, expert.told), "S3", now.id, ": epoch ", now.epoch,
          " is current after ", expert.told, " was made known");
  expert.view = now;
  expert.seen = true;
}

void Invariants::applied(Expert& expert, const coordinator::ExpertView& now) {
  const coordinator::ExpertView& before = expert.view;
  ++commits_;
  last_commit_ = world_.timeline.now();
  if (!now.head) return violated("S5", text(now.id, ": the head is gone"));
  const Object& object = world_.library.at(*now.head);
  const coordinator::ObjectFacts& facts = object.facts;
  fail_if(facts.parent != before.head, "S5", now.id, ": step ", facts.step,
          " is applied on another head than its parent");
  fail_if(facts.step <= before.head_step || facts.step != now.head_step, "S5", now.id, ": step ",
          now.head_step, " is applied after step ", before.head_step);
  fail_if(facts.run != now.id.run || facts.expert != now.id.index, "S5", now.id,
          ": another expert's checkpoint is applied");
  fail_if(facts.attempt != before.attempt, "S5", now.id, ": a checkpoint of attempt ",
          facts.attempt, " is applied in attempt ", before.attempt);
  fail_if(facts.epoch != before.epoch, "S2", now.id, ": a write of epoch ", facts.epoch,
          " is applied under epoch ", before.epoch);
  if (before.lease) {
    const std::set<std::string>& keys = senders_[now.head->raw()];
    const bool holder_sent = std::ranges::any_of(
        keys, [&](const auto& key) { return node_of(key) == before.lease->node.str(); });
    fail_if(!holder_sent, "S12", now.id, ": a commit is applied that its holder ",
            before.lease->node, " never sent");
    const bool was_revoked = std::ranges::any_of(revoked_, [&](const auto& key) {
      return is_revoked(key) && node_of(key) == before.lease->node.str();
    });
    fail_if(was_revoked, "S14", now.id, ": a commit of the revoked node ", before.lease->node,
            " is applied");
  } else {
    violated("S2", text(now.id, ": a commit is applied while nobody holds the expert"));
  }
  check_copies(expert, now);
  check_weights(expert, now);
  expert.history.push_back(
      {now.head->raw(), now.head_step, before.lease ? before.lease->node.str() : ""});
  expert.ever[now.head->raw()] = expert.history.back();
}

// Places may change in the step that accepts: what it waited for was at least
// what is in both.
void Invariants::check_copies(const Expert& expert, const coordinator::ExpertView& now) {
  const std::size_t places = std::min(expert.view.places.size(), now.places.size());
  fail_if(places + 1 > now.copies, "copies", now.id, ": waits for ", places, " nodes, ", now.copies,
          " copies are wanted");
  std::set<std::string> hosts;
  for (const auto& [node, holdings] : holdings_) {
    if (!holdings.is_lost && holdings.manifests.contains(now.head->raw()))
      hosts.insert(hosts_[node]);
  }
  bool leaves = false;
  if (expert.view.lease) {
    const std::string& committer = expert.view.lease->node.str();
    hosts.erase(hosts_[committer]);
    const Duration time = world_.timeline.now();
    leaves = std::ranges::any_of(beats_[committer], [&](const auto& each) {
      return each.second.draining_since &&
             time - *each.second.draining_since > each.second.patience;
    });
  }
  fail_if(hosts.size() < places && !leaves, "copies", now.id, ": step ", now.head_step,
          " is applied, and ", hosts.size(), " other hosts say that they hold it; it has ", places,
          " places");
}

void Invariants::check_weights(const Expert& expert, const coordinator::ExpertView& now) {
  const Object& object = world_.library.at(*now.head);
  Training training{.seed = world_.run_seed,
                    .expert = now.id.index,
                    .attempt = object.facts.attempt,
                    .step = 0,
                    .weights = {}};
  if (expert.view.head) {
    const Object& parent = world_.library.at(*expert.view.head);
    training.step = parent.facts.step;
    training.weights = parent.weights;
  }
  const Step last = object.facts.step;
  bool is_finite = true;
  while (training.step < last) {
    train_step(training);
    is_finite =
        is_finite && !is_non_finite(training, world_.non_finite_one_in, world_.non_finite_steps);
  }
  fail_if(training.weights != object.weights, "weights", now.id, ": the weights of step ", last,
          " are not those of an unbroken run");
  fail_if(!is_finite, "weights", now.id, ": weights that are not finite were committed at step ",
          last);
}

bool Invariants::knows_revocation(const Durable& durable, const std::string& key) const {
  const auto node = read<stored::Node>(durable, coordinator::kNodePrefix + node_of(key));
  return (node && node->revoked()) || durable.contains(coordinator::kRevokedPrefix + node_of(key));
}

void Invariants::coordinator_started(const coordinator::Core& core, const Durable& durable) {
  if (const std::string wrong = disk_.started(durable); !wrong.empty()) violated("S7", wrong);
  started_ = world_.timeline.now();
  heard_generation_ = 0;
  const auto meta = read<stored::Meta>(durable, coordinator::kMetaKey);
  // An earlier start may have asked long enough, and have ended before it
  // answered anybody.
  if (has_asked_ && meta && !meta->recalls_revocations()) must_recall_ = false;
  is_behind_ = meta && meta->generation() < told_generation_;
  for (const std::string& key : revoked_) {
    if (forgotten_.contains(key)) continue;
    const bool is_known = knows_revocation(durable, key);
    if (is_known) {
      brought_back_.erase(key);
    } else if (brought_back_.contains(key)) {  // a record said so, and it was not durable yet
      forgotten_[key] = world_.hold_revocation(NodeId(node_of(key)));
    } else {
      violated("S14", text("the revocation of ", node_of(key), " is gone after a start"));
    }
  }
  for (const coordinator::ExpertView& view : core.experts()) look_after_start(view);
  holdings_.clear();
  made_.clear();
  durable_version_ = last_batch_ = persisted_ = 0;
}

// What the last life knew may be gone; what it said may not.
void Invariants::look_after_start(const coordinator::ExpertView& now) {
  Expert& expert = experts_[now.id];
  // Without a lease the epoch is a memory only, and a restored one may be old:
  // the next grant must be higher.
  fail_if(now.lease && is_known_lower(now.epoch, expert.told), "S3", now.id,
          ": after a start epoch ", now.epoch, " is current, and ", expert.told,
          " was made known before");
  const std::string head = raw(now.head);
  std::size_t kept = 0;
  for (std::size_t i = expert.history.size(); i > 0 && kept == 0; --i) {
    if (expert.history[i - 1].manifest == head) kept = i;
  }
  fail_if(kept == 0 && !head.empty(), "S5", now.id,
          ": after a start the head is one that was never applied");
  fail_if(kept < expert.acknowledged, "S7", now.id, ": an acknowledged commit of step ",
          kept < expert.acknowledged ? expert.history[expert.acknowledged - 1].step : 0,
          " is gone after a restart");
  expert.history.resize(kept);
  expert.view = now;
  expert.seen = true;
}

void Invariants::coordinator_stopped() {
  has_asked_ = has_asked_ || world_.timeline.now() - started_ >= world_.recall_least * 9 / 10;
  for (auto& [id, expert] : experts_) expert.seen = false;
  recalls_ = false;
  recalled_.clear();
}

// A backup takes everyone back to its day, but not below an epoch that was ever
// told.
void Invariants::coordinator_restored(const Durable& durable) {
  disk_.restored(durable);
  must_recall_ = true;
  has_asked_ = false;
  drains_.clear();
  for (const std::string& key : revoked_) {
    if (!knows_revocation(durable, key))
      forgotten_[key] = world_.hold_revocation(NodeId(node_of(key)));
  }
  for (auto& [id, expert] : experts_) {
    const auto record = read<stored::Expert>(durable, coordinator::expert_key(id));
    expert.history.clear();
    expert.acknowledged = 0;
    for (int i = record ? record->checkpoints_size() : 0; i-- > 0;) {
      const auto known = expert.ever.find(record->checkpoints(i).manifest());
      if (known == expert.ever.end()) {
        violated("S5", text(id, ": a backup holds a commit that was never applied"));
        continue;
      }
      expert.history.push_back(known->second);
      if (known->second.is_acknowledged) expert.acknowledged = expert.history.size();
    }
  }
}

// ---- What the coordinator says ----

// A reply waits for its own batch. A later batch, which deletes the run, may be
// durable before the coordinator hears so.
bool Invariants::was_deleted(const ExpertId& id, const Durable& durable) {
  return durable.contains(coordinator::kDeletedPrefix + id.run.str());
}

void Invariants::epoch_told(const ExpertId& id, std::uint64_t epoch, const char* how,
                            const Durable& durable) {
  Expert& expert = experts_[id];
  fail_if(is_known_lower(Epoch(epoch), expert.told), "S3", id, ": ", how, " names epoch ",
          Epoch(epoch), " after ", expert.told);
  const stored::Expert* record = durable_experts_.read(durable, coordinator::expert_key(id));
  const bool is_durable = record ? record->epoch() >= epoch
                                 : was_deleted(id, durable) && Epoch(epoch) <= expert.view.epoch;
  fail_if(!is_durable, "S7", id, ": ", how, " names epoch ", Epoch(epoch), " before it is durable");
  expert.told = std::max(expert.told, Epoch(epoch));
  told_generation_ = std::max<std::uint32_t>(told_generation_, expert.told.generation());
}

void Invariants::head_told(const ExpertId& id, const std::string& manifest,
                           const Durable& durable) {
  if (manifest.empty()) return;
  Expert& expert = experts_[id];
  const auto at = std::ranges::find_if(expert.history,
                                       [&](const Head& head) { return head.manifest == manifest; });
  if (at == expert.history.end())
    return violated("S5", text(id, ": a head is told that was never applied"));
  const stored::Expert* record = durable_experts_.read(durable, coordinator::expert_key(id));
  const Step durable_step =
      record && record->checkpoints_size() > 0 ? record->checkpoints(0).step() : 0;
  fail_if(durable_step < at->step && (record || !was_deleted(id, durable)), "S7", id, ": step ",
          at->step, " is told as committed before it is durable");
  fail_if(!world_.is_stored(*Hash::from_raw(manifest)), "S4", id, ": step ", at->step,
          " is told as committed, and the coordinator has not got it whole");
  for (int i = 0; record && i < record->checkpoints_size(); ++i) {
    const stored::Checkpoint& checkpoint = record->checkpoints(i);
    const Step before = i + 1 < record->checkpoints_size() ? record->checkpoints(i + 1).step() : 0;
    fail_if(checkpoint.step() <= before, "S5", id, ": step ", checkpoint.step(),
            " stands in its history after ", before);
    fail_if(i + 1 < record->checkpoints_size() && checkpoint.from_step() != before, "S9", id,
            ": steps ", before, " to ", checkpoint.from_step(), " are in no commit");
    fail_if(checkpoint.manifest() == manifest && checkpoint.node() != at->node, "S12", id,
            ": step ", at->step, " was applied in the name of ", checkpoint.node(),
            ", which did not hold the expert");
  }
  expert.acknowledged =
      std::max(expert.acknowledged, static_cast<std::size_t>(at - expert.history.begin()) + 1);
  expert.ever.at(manifest).is_acknowledged = true;
}

void Invariants::check_assignment(const std::string& node, const pb::Assignment& assignment,
                                  const Durable& durable) {
  for (const pb::SlotAssignment& slot : assignment.slots()) {
    const ExpertId id{RunId(slot.run()), slot.expert()};
    epoch_told(id, slot.epoch(), "an assignment", durable);
    head_told(id, slot.head().manifest(), durable);
    const stored::Expert* record = durable_experts_.read(durable, coordinator::expert_key(id));
    // An assignment waits for its own batch to be durable: a later one, which
    // ends this lease, may be so already.
    const bool is_current = record && record->has_lease() && record->epoch() == slot.epoch();
    Holder holder{node, slot.slot(), is_current ? record->lease().incarnation() : 0};
    const auto [known, fresh] = holders_.try_emplace({id, slot.epoch()}, holder);
    if (!is_current) holder.incarnation = known->second.incarnation;
    if (known->second.incarnation == 0) known->second.incarnation = holder.incarnation;
    fail_if(!fresh && known->second != holder, "S1", id, ": epoch ", slot.epoch(), " is given to ",
            node, " slot ", slot.slot(), " and was given to ", known->second.node, " slot ",
            known->second.slot);
  }
}

// A revoked key is not served from then on, nor let in again.
void Invariants::coordinator_hears(const coordinator::ConnectionId&, const std::string& key,
                                   const pb::ControlRequest&) {
  fail_if(revoked_.contains(key) && disk_.is_revoked(node_of(key)), "S14", "the revoked node ",
          node_of(key), " was let in");
}

void Invariants::coordinator_sends(const std::string& key, const pb::ControlReply& reply,
                                   const Durable& durable) {
  const std::string node = node_of(key);
  if (must_recall_ && !reply.has_error()) {
    const Duration since = world_.timeline.now() - started_;
    fail_if(since < world_.recall_least * 9 / 10, "S14", "the restored coordinator answers ", node,
            " ", human_duration(since), " after its start, before it can have asked its nodes");
    must_recall_ = false;
  }
  fail_if(reply.heartbeat().assignment_version() > durable_version_, "S7", node,
          " is told of assignment ", reply.heartbeat().assignment_version(), ", and only ",
          durable_version_, " is durable");
  fail_if(is_revoked(key) && !reply.has_error(), "S14", "the revoked node ", node,
          " is told more than an error");
  if (reply.has_assignment()) check_assignment(node, reply.assignment(), durable);
  for (const pb::RenewedLease& lease : reply.heartbeat().renewed()) {
    const ExpertId id{RunId(lease.run()), lease.expert()};
    epoch_told(id, lease.epoch(), "a renewal", durable);
    const auto known = holders_.find({id, lease.epoch()});
    fail_if(known != holders_.end() && known->second.node != node, "S1", id, ": epoch ",
            lease.epoch(), " is renewed for ", node, ", which does not hold it");
  }
  if (reply.has_commit()) {
    const pb::CommitReply& commit = reply.commit();
    const ExpertId id{RunId(commit.run()), commit.expert()};
    if (commit.status() == pb::COMMIT_ACCEPTED) {
      fail_if(commit.head().manifest().empty(), "S5", id, ": accepted, but no head");
      fail_if(!senders_[commit.head().manifest()].contains(key), "S5", id, ": accepted for ", node,
              ", which never sent this head");
    }
    if (commit.status() != pb::COMMIT_REFUSED) head_told(id, commit.head().manifest(), durable);
  }
}

void Invariants::coordinator_sends(const std::string& key, const pb::EnrolRequest& request,
                                   const pb::EnrolReply& reply, const Durable& durable) {
  if (!reply.has_certificate()) return;
  pb::CertificateBody body;
  fail_if(!body.ParseFromString(reply.certificate().body()) || body.x25519_key() != key, "S12",
          "a certificate for another key than the peer's");
  node_keys_[key] = body.node_id();
  const auto node = read<stored::Node>(durable, coordinator::kNodePrefix + body.node_id());
  fail_if(!node || node->x25519_key() != key, "S7",
          "a certificate leaves before its node is durable");
  fail_if(is_revoked(key), "S14", "a revoked key is given a certificate");
  if (request.has_certificate()) return;  // it spends no token
  const std::string token_id = node ? node->token() : request.token_id();
  const bool is_first = enrolled_by_[token_id].insert(key).second;
  const auto token = read<stored::Token>(durable, coordinator::kTokenPrefix + token_id);
  // A retry gets the first answer, also where a restore has ended the token
  // since.
  fail_if(is_first && token && body.issued_unix_ms() >= token->info().expires_unix_ms(), "S13",
          "token ", token_id, " has enrolled ", body.node_id(), " after its end");
  fail_if(!token || enrolled_by_[token_id].size() > token->info().uses(), "S13", "token ", token_id,
          " has enrolled ", enrolled_by_[token_id].size(), " keys");
  std::size_t rostered =
      0;  // by it; a restored state may have forgotten some, and is to let in no others
  each<stored::Node>(durable, coordinator::kNodePrefix, [&](const stored::Node& known) {
    rostered += known.token() == token_id ? 1 : 0;
  });
  fail_if(token && token->info().used() < rostered, "S13", "token ", token_id, " has enrolled ",
          rostered, " keys, and only ", token->info().used(), " uses are durable");
}

void Invariants::coordinator_drops(const Hash& manifest, const Durable& durable) {
  const std::string name = manifest.raw();
  if (disk_.is_named_by_pending(name) || is_named(durable, name))
    violated("S8",
             text("the coordinator drops ", world_.trace.object(name), ", which is still named"));
  for (const auto& [id, expert] : experts_) {
    fail_if(expert.seen && expert.view.pending == manifest, "S8", "the coordinator drops ",
            world_.trace.object(name), ", which a commit of ", id, " names that is pending");
  }
}

// ---- Daemons ----

// What a daemon reports is on its disk, and stays there until another
// assignment comes.
void Invariants::check_replicas(const DaemonStep& step) {
  hosts_[step.id.str()] = step.host;
  std::set<std::string>& held = replicas_[step.name];
  if (const auto* reply = std::get_if<daemon::Reply>(&step.event);
      reply && reply->reply.has_assignment())
    held.clear();
  for (const daemon::DropObject& drop : step.effects.drops) {
    if (!held.contains(drop.manifest.raw())) continue;
    violated("S8", text(step.id, " drops the replica ", world_.trace.object(drop.manifest.raw()),
                        ", which it was told to hold"));
  }
  for (const pb::ControlRequest& request : step.effects.sends) {
    if (!request.has_heartbeat()) continue;
    held.clear();
    for (const pb::ReplicaStatus& replica : request.heartbeat().replicas()) {
      held.insert(replica.manifest());
      if (!replica.durable() || step.has_stored(*Hash::from_raw(replica.manifest()))) continue;
      violated("copies", text(step.id, " reports ", world_.trace.object(replica.manifest()),
                              ", which is not on its disk"));
    }
  }
}

void Invariants::daemon_stepped(const DaemonStep& step) {
  check_drain(step);
  check_replicas(step);
  for (const pb::ControlRequest& request : step.effects.sends) {
    fail_if(request.ByteSizeLong() > protocol::kControlMessageBytes, "S15", step.id,
            " sends a message over the size limit");
    // What was stored can be read again, and stands where it was said to stand,
    // unless the disk loses bytes.
    const bool is_bad_input =
        request.engine_report().failure() == pb::EngineEvent::FAILURE_BAD_INPUT;
    const auto may_be = [&] {
      return world_.faults.contains("object_lost") || world_.faults.contains("bit_flips");
    };
    fail_if(is_bad_input && !may_be(), "engine", step.id,
            " cannot use its own input: ", request.engine_report().reason());
    if (request.has_commit()) check_commit(step, request.commit());
    if (request.has_hello()) applied_versions_[step.name] = 0;
    if (!request.has_heartbeat()) continue;
    std::uint64_t& applied = applied_versions_[step.name];
    fail_if(request.heartbeat().assignment_version() < applied, "assignment", step.id,
            " has gone back from version ", applied, " to ",
            request.heartbeat().assignment_version());
    applied = request.heartbeat().assignment_version();
  }
  for (const daemon::SlotView& slot : step.slots) {
    if (!slot.has_lease || !slot.may_commit) continue;
    const auto expert = experts_.find(slot.expert);
    if (expert == experts_.end() || expert->second.told != slot.epoch) continue;
    const auto holder = holders_.find({slot.expert, slot.epoch.value()});
    const Holder itself{step.id.str(), slot.slot, step.incarnation};
    fail_if(holder == holders_.end() || holder->second != itself, "S1", slot.expert, ": ", step.id,
            " may commit under epoch ", slot.epoch, ", which it does not hold");
  }
  if (const auto* reply = std::get_if<daemon::Reply>(&step.event);
      reply && reply->reply.has_assignment())
    assigned_.insert(step.name);
  if (!step.effects.drops.empty()) check_drops(step);
}

void Invariants::check_drops(const DaemonStep& step) {
  std::set<std::string> needed;
  const auto& waiting = sent_[step.name];
  for (const daemon::SlotView& slot : step.slots) {
    if (!slot.has_lease) continue;
    if (!slot.head.empty()) needed.insert(slot.head);
    const auto sent = waiting.find(slot.expert);
    if (slot.commit_in_flight && sent != waiting.end()) needed.insert(sent->second);
  }
  for (const daemon::DropObject& drop : step.effects.drops) {
    const bool is_needed = needed.contains(drop.manifest.raw());
    const bool is_early =
        drop.kind == daemon::ObjectKind::kCheckpoint && !assigned_.contains(step.name);
    if (!is_needed && !is_early) continue;
    violated("S8", text(step.id, " drops ", world_.trace.object(drop.manifest.raw()),
                        is_needed ? ", which it still needs"
                                  : " before any coordinator has answered it"));
  }
}

// A node commits only while its lease lasts, on the head it knows, one after
// the other.
void Invariants::check_commit(const DaemonStep& step, const pb::Commit& commit) {
  const ExpertId id{RunId(commit.run()), commit.expert()};
  sent_[step.name][id] = commit.manifest().manifest();
  const auto slot = std::ranges::find_if(step.slots, [&](const daemon::SlotView& each) {
    return each.has_lease && each.expert == id;
  });
  fail_if(slot == step.slots.end() || !slot->may_commit, "S1", id, ": ", step.id,
          " commits without a valid lease");
  const Object* object = world_.library.find(*Hash::from_raw(commit.manifest().manifest()));
  const std::string parent = object == nullptr ? "" : raw(object->facts.parent);
  fail_if(object == nullptr || parent != commit.parent(), "S5", id, ": ", step.id, " commits ",
          world_.trace.object(commit.manifest().manifest()), " on another parent than its own");
}

void Invariants::daemon_drains(const std::string& name, const daemon::SlotView& slot,
                               Step trained) {
  if (slot.has_lease) drains_[name].try_emplace(slot.slot, Drain{slot.expert, slot.epoch, trained});
}

// A lease that a drain gives back leaves no step behind, unless an engine, a
// disk or another epoch took the work. An engine does not give a snapshot
// twice: if a disk lost the last one, only the next covers its steps.
void Invariants::check_drain(const DaemonStep& step) {
  const bool disk_failed = std::holds_alternative<daemon::ObjectFailed>(step.event);
  for (const daemon::SlotView& slot : step.slots) {
    if (disk_failed && slot.has_lease) taken_by_disk_[{step.name, slot.expert}] = slot.step;
  }
  const auto draining = drains_.find(step.name);
  if (draining == drains_.end()) return;
  const auto* exited = std::get_if<daemon::EngineExited>(&step.event);
  const auto* reply = std::get_if<daemon::Reply>(&step.event);
  const bool is_excused =
      std::holds_alternative<daemon::EngineFailed>(step.event) || disk_failed ||
      (exited != nullptr && exited->how == kBrokenEngine) ||
      (reply != nullptr && reply->reply.commit().status() > pb::COMMIT_ACCEPTED);
  if (is_excused) {
    drains_.erase(draining);
    return;
  }
  for (const pb::ControlRequest& request : step.effects.sends) {
    const pb::ReturnLease& lease = request.return_lease();
    for (const auto& [slot, drain] : draining->second) {
      if (lease.reason() != "drain" ||
          drain.expert != ExpertId{RunId(lease.run()), lease.expert()} ||
          drain.epoch.value() != lease.epoch())
        continue;
      // Ever: a restored coordinator may have lost what it had applied, and the
      // node does not know yet.
      const bool is_applied =
          std::ranges::any_of(experts_[drain.expert].ever,
                              [&](const auto& each) { return each.second.step >= drain.trained; });
      const auto taken = taken_by_disk_.find({step.name, drain.expert});
      const Step safe = taken == taken_by_disk_.end() ? 0 : taken->second;
      fail_if(!is_applied && drain.trained > safe, "drain", drain.expert, ": ", step.id,
              " gives it back and had trained to step ", drain.trained);
    }
  }
}

void Invariants::daemon_stopped(const std::string& name) {
  sent_.erase(name);
  assigned_.erase(name);
  applied_versions_.erase(name);
  replicas_.erase(name);
  drains_.erase(name);
  std::erase_if(taken_by_disk_, [&](const auto& each) { return each.first.first == name; });
  for (auto& [key, holders] : forgotten_)
    std::erase_if(holders, [&](const auto& holder) { return holder.second == name; });
}

}  // namespace skerry::simulation
