// Commits: the only way in which training becomes durable. Accepted once, on the current head, under the current epoch.
#include <cmath>

#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

void Machine::commit(Node& node, const Received& event) {
  const pb::Commit& commit = event.request.commit();
  const auto answer = [&](const pb::CommitReply& verdict) {
    pb::ControlReply message;
    message.set_id(event.request.id());
    *message.mutable_commit() = verdict;
    reply(event.connection, std::move(message));
  };
  Expert* expert = runs.find_expert(commit.run(), commit.expert());
  if (expert == nullptr) {
    pb::CommitReply fenced;
    fenced.set_status(pb::COMMIT_FENCED);
    fenced.set_run(commit.run());
    fenced.set_expert(commit.expert());
    fenced.set_epoch(commit.epoch());
    fenced.set_reason("there is no such run or expert any more");
    answer(fenced);
    return;
  }
  if (std::optional<pb::CommitReply> verdict = decide(*expert, node, commit)) {
    answer(*verdict);
    return;
  }
  if (std::optional<Error> error = fetch_commit(*expert, node, event)) {
    reply_error(event.connection, event.request.id(), *error);
    return;
  }
  answer(verdict(*expert, commit, pb::COMMIT_FETCHING, ""));
}

pb::CommitReply Machine::verdict(const Expert& expert, const pb::Commit& commit, pb::CommitStatus status,
                                 const std::string& reason) const {
  pb::CommitReply answer;
  answer.set_status(status);
  answer.set_run(commit.run());
  answer.set_expert(commit.expert());
  answer.set_epoch(commit.epoch());
  if (!expert.head().empty()) *answer.mutable_head() = object_ref(expert.record->checkpoints(0));
  answer.set_head_step(expert.step());
  answer.set_reason(reason);
  return answer;
}

// The answer that can be given now; none where the object must be fetched first, here or by nodes that hold copies.
std::optional<pb::CommitReply> Machine::decide(Expert& expert, const Node& node, const pb::Commit& commit) {
  const auto say = [&](pb::CommitStatus status, const std::string& reason) {
    return verdict(expert, commit, status, reason);
  };
  const auto refused = [&](const std::string& reason) {
    refuse(expert, node, reason);
    return say(pb::COMMIT_REFUSED, reason);
  };
  const Run& run = runs.at(commit.run());
  if (commit.epoch() != expert.record->epoch() && !planted("stale_epoch_accepted")) {  // S2
    const std::string reason =
        text("epoch ", commit.epoch(), " is over, epoch ", expert.record->epoch(), " is current");
    tell_fenced(expert, node, commit.epoch(), commit.to_step(),
                text("a commit of step ", commit.to_step(), ": ", reason));
    return say(pb::COMMIT_FENCED, reason);
  }
  if (!expert.head().empty()) {  // S5: the first answer for this span, whatever the bytes
    const stored::Checkpoint& head = expert.record->checkpoints(0);
    const bool same_span = head.from_step() == commit.from_step() && head.step() == commit.to_step() &&
                           head.parent() == commit.parent() && head.attempt() == commit.attempt();
    if (head.epoch() == commit.epoch() && head.node() == node.record->id() &&
        (same_span || head.manifest() == commit.manifest().manifest())) {
      if (const StoredObject* object = objects.find(*Hash::from_raw(head.manifest()));
          planted("duplicate_applied") && object != nullptr) {
        accept(expert, node, commit, *object);
      }
      return say(pb::COMMIT_ACCEPTED, "");
    }
  }
  const bool unfenced = planted("stale_epoch_accepted") && expert.has_lease();
  if (!holds(expert, node, commit.epoch()) && !unfenced) {
    const std::string reason =
        expert.has_lease() ? "another node holds this lease" : "the lease was given back";
    tell_fenced(expert, node, commit.epoch(), commit.to_step(),
                text("a commit of step ", commit.to_step(), ": ", reason));
    return say(pb::COMMIT_FENCED, reason);
  }
  if (commit.attempt() != expert.record->attempt() && !planted("old_attempt_accepted")) {
    return refused(
        text("it is of attempt ", commit.attempt(), ", attempt ", expert.record->attempt(), " is current"));
  }
  if (commit.parent() != expert.head() && !planted("parent_not_checked")) {
    return say(pb::COMMIT_STALE_PARENT, text("its parent is not the head, which is at step ", expert.step()));
  }
  const bool goes_on = commit.from_step() == expert.step() || planted("parent_not_checked");
  if (!goes_on || commit.to_step() <= commit.from_step() || commit.to_step() > run.record->steps_target()) {
    return refused(text("steps ", commit.from_step(), " to ", commit.to_step(), " do not go on from step ",
                        expert.step(), " towards ", run.record->steps_target()));
  }
  if (!std::isfinite(commit.metrics().loss()) || !std::isfinite(commit.metrics().gradient_norm())) {
    return refused("its loss or gradient is not finite");
  }
  const Result<Hash> manifest = Hash::from_raw(commit.manifest().manifest());
  if (!manifest) return refused("its manifest is not named by a hash");
  if (commit.manifest().bytes() > config.object_bytes) {
    return refused(text("a checkpoint of ", human_bytes(commit.manifest().bytes()), " is over the limit of ",
                        human_bytes(config.object_bytes)));
  }
  const StoredObject* object = objects.find(*manifest);
  if (object == nullptr) return std::nullopt;
  if (const std::string wrong = mismatch(expert, commit, *object); !wrong.empty()) return refused(wrong);
  if (copies_lacking(expert, *manifest, node.record->id()) > 0) return std::nullopt;
  accept(expert, node, commit, *object);
  return say(pb::COMMIT_ACCEPTED, "");
}

// What the manifest says of itself must be what the commit says of it.
std::string Machine::mismatch(const Expert& expert, const pb::Commit& commit,
                              const StoredObject& object) const {
  if (planted("manifest_not_checked") || planted("parent_not_checked")) return "";
  const ObjectFacts& facts = object.facts;
  if (!object.checkpoint) return "its object is a file, not a checkpoint";
  if (facts.run != commit.run() || facts.expert != commit.expert()) {
    return text("its manifest is of run ", facts.run, ", expert ", facts.expert);
  }
  if (facts.step != commit.to_step())
    return text("its manifest is of step ", facts.step, ", not ", commit.to_step());
  if (facts.epoch != commit.epoch())
    return text("its manifest is of epoch ", facts.epoch, ", not ", commit.epoch());
  if (facts.attempt != commit.attempt()) return text("its manifest is of attempt ", facts.attempt);
  if ((facts.parent ? facts.parent->raw() : "") != expert.head()) return "its manifest names another parent";
  if (facts.fingerprint != commit.fingerprint()) return "its manifest names another engine than the commit";
  return "";
}

std::optional<Error> Machine::fetch_commit(Expert& expert, const Node& node, const Received& event) {
  const pb::Commit& commit = event.request.commit();
  const pb::ObjectRef& object = commit.manifest();
  const Hash manifest = *Hash::from_raw(object.manifest());
  const bool is_stored = objects.has(manifest);
  if (!is_stored && !objects.has_room(object.bytes())) {
    objects.disk_is_full(config.reserve_bytes + object.bytes());
    return fail(ErrorCode::kUnavailable,
                text("the coordinator's disk has ", human_bytes(objects.disk_free()),
                     " free and the checkpoint needs ", human_bytes(object.bytes()), " besides ",
                     human_bytes(config.reserve_bytes), " kept in reserve"));
  }
  if (expert.pending && expert.pending->manifest != manifest) drop_pending(expert);
  set_pending(expert,
              PendingCommit{manifest, node.record->id(), commit, event.connection, event.request.id()});
  if (!is_stored) {
    effects.fetches.push_back({manifest, object.manifest_bytes(), object.bytes(), NodeId(node.record->id()),
                               Purpose::kCheckpoint, ""});
  }
  return std::nullopt;
}

void Machine::set_pending(Expert& expert, std::optional<PendingCommit> pending) {
  const auto manifest_of = [](const auto& each) {
    return each ? std::optional(each->manifest) : std::nullopt;
  };
  const std::optional<Hash> before = manifest_of(expert.pending);
  const bool is_other = manifest_of(pending) != before;
  expert.pending = std::move(pending);
  if (!is_other) return;
  replicas_changed(expert);
  // It was whole here and waited for its copies: it may be sent again.
  if (before && objects.has(*before) && !is_wanted(*before)) objects.leave_unclaimed(*before);
}

void Machine::drop_pending(Expert& expert) {
  if (!expert.pending) return;
  const Hash manifest = expert.pending->manifest;
  set_pending(expert, std::nullopt);
  cancel_fetch(manifest);
}

// Its object is there: decided again, since everything may have changed meanwhile; told to whoever asked last. Without
// its copies it goes on waiting.
void Machine::commit_stored(Expert& expert) {
  const PendingCommit pending = *expert.pending;
  const std::optional<pb::CommitReply> verdict = decide(expert, roster.at(pending.node), pending.commit);
  if (!verdict) return;
  set_pending(expert, std::nullopt);
  pb::ControlReply message;
  message.set_id(pending.request);
  *message.mutable_commit() = *verdict;
  reply(pending.asker, std::move(message));
}

void Machine::accept(Expert& expert, const Node& node, const pb::Commit& commit, const StoredObject& object) {
  stored::Expert& record = expert.record.change();
  const Run& run = runs.at(record.run());
  const std::size_t copies =
      hosts_with(expert, *Hash::from_raw(commit.manifest().manifest()), node.record->id());
  if (expert.pending && expert.pending->manifest.raw() == commit.manifest().manifest()) {
    expert.pending.reset();  // it is the head in a moment: who holds it goes on
  } else {
    drop_pending(expert);
  }
  stored::Checkpoint checkpoint;
  checkpoint.set_manifest(commit.manifest().manifest());
  checkpoint.set_manifest_bytes(object.manifest_bytes);
  checkpoint.set_bytes(object.bytes);
  checkpoint.set_from_step(commit.from_step());
  checkpoint.set_step(commit.to_step());
  checkpoint.set_epoch(commit.epoch());
  checkpoint.set_attempt(commit.attempt());
  checkpoint.set_parent(commit.parent());
  checkpoint.set_fingerprint(commit.fingerprint());
  checkpoint.set_round(1 + (expert.head().empty() ? 0 : expert.record->checkpoints(0).round()));
  checkpoint.set_node(node.record->id());
  checkpoint.set_committed_unix_ms(now.unix_ms);
  *checkpoint.mutable_metrics() = commit.metrics();
  objects.name(checkpoint.manifest());

  const auto keep = static_cast<int>(std::max<std::uint32_t>(run.record->spec().keep(), 1));
  google::protobuf::RepeatedPtrField<stored::Checkpoint> kept;
  *kept.Add() = std::move(checkpoint);
  for (const stored::Checkpoint& older : record.checkpoints()) {
    if (kept.size() < keep) {
      *kept.Add() = older;
      if (planted("kept_one_too_few") && kept.size() == keep)
        effects.drops.push_back({*Hash::from_raw(older.manifest()), Purpose::kCheckpoint});
    } else {
      objects.unname(older.manifest(), Purpose::kCheckpoint);
    }
  }
  record.mutable_checkpoints()->Swap(&kept);
  replicas_changed(expert);
  if (!planted("attempts_never_forgiven")) record.set_attempt_at_commit(record.attempt());
  record.mutable_lease()->set_rounds(record.lease().rounds() + 1);
  unsettled = true;
  events.tell(
      "committed",
      text("steps ", commit.from_step(), " to ", commit.to_step(), ", loss ", commit.metrics().loss(),
           copies > 0 ? text(", in ", copies + 1, " places") : "",
           copies < expert.places.size() ? "; other copies are still to come: its node is going away" : ""),
      node.record->name(), &expert, commit.to_step());

  if (commit.to_step() >= run.record->steps_target()) {
    release(expert, "expert_done", text("step ", commit.to_step(), " was the last"));
    if (run.active() && run.is_all_at_target()) {
      runs.set_wanted(runs.at(record.run()), stored::WANTED_DONE,
                      text("every expert has reached step ", commit.to_step()));
    }
  }
}

// Once for each node and epoch: whoever is fenced asks again until it has understood.
void Machine::tell_fenced(Expert& expert, const Node& node, std::uint64_t epoch, Step step,
                          const std::string& reason) {
  const std::pair told(node.record->id(), epoch);
  if (expert.fenced_told == told) return;
  expert.fenced_told = told;
  events.tell("fenced", reason, node.record->name(), &expert, step);
}

void Machine::refuse(Expert& expert, const Node& node, const std::string& reason) {
  const std::pair told(node.record->id(), reason);
  if (expert.refused_told == told) return;
  expert.refused_told = told;
  events.tell("refused", reason, node.record->name(), &expert, expert.step());
}

}  // namespace skerry::coordinator
