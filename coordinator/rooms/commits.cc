// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/commits.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace skerry::coordinator {
namespace {

pb::CommitReply verdict(const Expert& expert, const pb::Commit& commit, pb::CommitStatus status,
                        const std::string& reason) {
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

// What the manifest says of itself must be what the commit says of it.
std::string mismatch(const Expert& expert, const pb::Commit& commit, const StoredObject& object) {
  const ObjectFacts& facts = object.facts;
  if (!object.checkpoint) return "its object is a file, not a checkpoint";
  if (facts.run.str() != commit.run() || facts.expert != commit.expert()) {
    return text("its manifest is of run ", facts.run, ", expert ", facts.expert);
  }
  if (facts.step != commit.to_step())
    return text("its manifest is of step ", facts.step, ", not ", commit.to_step());
  if (const Epoch epoch(commit.epoch()); facts.epoch != epoch)
    return text("its manifest is of epoch ", facts.epoch, ", not ", epoch);
  if (facts.attempt != commit.attempt()) return text("its manifest is of attempt ", facts.attempt);
  if ((facts.parent ? facts.parent->raw() : "") != expert.head())
    return "its manifest names another parent";
  if (facts.fingerprint != commit.fingerprint())
    return "its manifest names another engine than the commit";
  return "";
}

pb::HistoryPoint point_of(const stored::Checkpoint& checkpoint, const Node& node) {
  pb::HistoryPoint point;
  point.set_step(checkpoint.step());
  point.set_unix_ms(checkpoint.committed_unix_ms());
  point.set_loss(checkpoint.metrics().loss());
  point.set_gradient_norm(checkpoint.metrics().gradient_norm());
  point.set_samples(checkpoint.metrics().samples());
  point.set_train_seconds(checkpoint.metrics().train_seconds());
  point.set_node(node.record->name());
  point.set_epoch(checkpoint.epoch());
  point.set_attempt(checkpoint.attempt());
  return point;
}

}  // namespace

void Commits::commit(const Node& node, const Received& event) {
  const pb::Commit& commit = event.request.commit();
  const auto say = [&](const pb::CommitReply& verdict) {
    answer({.asker = event.connection, .request = event.request.id()}, verdict);
  };
  Expert* expert = runs_.find_expert(RunId(commit.run()), commit.expert());
  if (expert == nullptr) {
    pb::CommitReply fenced;
    fenced.set_status(pb::COMMIT_FENCED);
    fenced.set_run(commit.run());
    fenced.set_expert(commit.expert());
    fenced.set_epoch(commit.epoch());
    fenced.set_reason("there is no such run or expert any more");
    say(fenced);
    return;
  }
  if (std::optional<pb::CommitReply> verdict = decide(*expert, node, commit)) {
    say(*verdict);
    return;
  }
  if (std::optional<Error> error = fetch(*expert, node, event)) {
    context.reply_error(event.connection, event.request.id(), *error);
    return;
  }
  say(verdict(*expert, commit, pb::COMMIT_FETCHING, ""));
}

// The answer that can be given now; none where the object must be fetched
// first, here or by nodes that hold copies.
std::optional<pb::CommitReply> Commits::decide(Expert& expert, const Node& node,
                                               const pb::Commit& commit) {
  const auto say = [&](pb::CommitStatus status, const std::string& reason) {
    return verdict(expert, commit, status, reason);
  };
  const auto refused = [&](const std::string& reason) {
    refuse(expert, node, reason);
    return say(pb::COMMIT_REFUSED, reason);
  };
  const Run& run = runs_.of(expert);
  const Epoch epoch(commit.epoch());
  if (epoch != expert.epoch()) {  // S2
    const std::string reason =
        text("epoch ", epoch, " is over, epoch ", expert.epoch(), " is current");
    tell_fenced(expert, node, epoch, commit.to_step(),
                text("a commit of step ", commit.to_step(), ": ", reason));
    return say(pb::COMMIT_FENCED, reason);
  }
  if (!expert.head().empty()) {  // S5: the first answer for this span, whatever the bytes
    const stored::Checkpoint& head = expert.record->checkpoints(0);
    const bool same_span = head.from_step() == commit.from_step() &&
                           head.step() == commit.to_step() && head.parent() == commit.parent() &&
                           head.attempt() == commit.attempt();
    if (head.epoch() == commit.epoch() && head.node() == node.id().str() &&
        (same_span || head.manifest() == commit.manifest().manifest()))
      return say(pb::COMMIT_ACCEPTED, "");
  }
  if (!expert.is_held_by(node, epoch)) {
    const std::string reason =
        expert.has_lease() ? "another node holds this lease" : "the lease was given back";
    tell_fenced(expert, node, epoch, commit.to_step(),
                text("a commit of step ", commit.to_step(), ": ", reason));
    return say(pb::COMMIT_FENCED, reason);
  }
  if (commit.attempt() != expert.record->attempt()) {
    return refused(text("it is of attempt ", commit.attempt(), ", attempt ",
                        expert.record->attempt(), " is current"));
  }
  if (commit.parent() != expert.head()) {
    return say(pb::COMMIT_STALE_PARENT,
               text("its parent is not the head, which is at step ", expert.step()));
  }
  const bool goes_on = commit.from_step() == expert.step();
  if (!goes_on || commit.to_step() <= commit.from_step() ||
      commit.to_step() > run.record->steps_target()) {
    return refused(text("steps ", commit.from_step(), " to ", commit.to_step(),
                        " do not go on from step ", expert.step(), " towards ",
                        run.record->steps_target()));
  }
  if (!std::isfinite(commit.metrics().loss()) || !std::isfinite(commit.metrics().gradient_norm())) {
    return refused("its loss or gradient is not finite");
  }
  const Result<Hash> manifest = Hash::from_raw(commit.manifest().manifest());
  if (!manifest) return refused("its manifest is not named by a hash");
  if (commit.manifest().bytes() > config.object_bytes) {
    return refused(text("a checkpoint of ", human_bytes(commit.manifest().bytes()),
                        " is over the limit of ", human_bytes(config.object_bytes)));
  }
  const StoredObject* object = objects_.find(*manifest);
  if (object == nullptr) return std::nullopt;
  if (const std::string wrong = mismatch(expert, commit, *object); !wrong.empty())
    return refused(wrong);
  if (copies_.lacking(expert, *manifest, node.id()) > 0) return std::nullopt;
  accept(expert, node, commit, *object);
  return say(pb::COMMIT_ACCEPTED, "");
}

std::optional<Error> Commits::fetch(Expert& expert, const Node& node, const Received& event) {
  const pb::Commit& commit = event.request.commit();
  const pb::ObjectRef& object = commit.manifest();
  const Hash manifest = *Hash::from_raw(object.manifest());
  const bool is_stored = objects_.has(manifest);
  if (!is_stored && !objects_.has_room(object.bytes())) {
    objects_.disk_is_full(config.reserve_bytes + object.bytes());
    return fail(ErrorCode::kUnavailable,
                text("the coordinator's disk has ", human_bytes(objects_.disk_free()),
                     " free and the checkpoint needs ", human_bytes(object.bytes()), " besides ",
                     human_bytes(config.reserve_bytes), " kept in reserve"));
  }
  if (expert.commit->pending && expert.commit->pending->manifest != manifest) drop_pending(expert);
  set_pending(expert,
              PendingCommit{manifest, node.id(), commit, event.connection, event.request.id()});
  if (!is_stored) {
    effects.fetches.push_back(
        {manifest, object.manifest_bytes(), object.bytes(), node.id(), Purpose::kCheckpoint, ""});
  }
  return std::nullopt;
}

void Commits::set_pending(Expert& expert, std::optional<PendingCommit> pending) {
  const auto manifest_of = [](const auto& each) {
    return each ? std::optional(each->manifest) : std::nullopt;
  };
  const std::optional<Hash> before = manifest_of(expert.commit->pending);
  const bool is_other = manifest_of(pending) != before;
  expert.commit.edit().pending = std::move(pending);
  if (!is_other) return;
  copies_.changed(expert);
  // It was whole here and waited for its copies: it may be sent again.
  if (before && objects_.has(*before) && !is_wanted(*before)) objects_.leave_unclaimed(*before);
}

void Commits::drop_pending(Expert& expert) {
  if (!expert.commit->pending) return;
  const Hash manifest = expert.commit->pending->manifest;
  set_pending(expert, std::nullopt);
  cancel_fetch(manifest);
}

bool Commits::is_held_up(const Expert& expert) const {
  const std::optional<PendingCommit>& pending = expert.commit->pending;
  return objects_.lacks_room() || (pending && objects_.has(pending->manifest));
}

void Commits::try_again(Expert& expert) {
  const PendingCommit pending = *expert.commit->pending;
  const std::optional<pb::CommitReply> verdict =
      decide(expert, roster_.at(pending.node), pending.commit);
  if (!verdict) return;
  set_pending(expert, std::nullopt);
  answer(pending, *verdict);
}

void Commits::object_failed(const ObjectFailed& event) {
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      if (!expert.commit->pending || expert.commit->pending->manifest != event.manifest) continue;
      const PendingCommit pending = *expert.commit->pending;
      set_pending(expert, std::nullopt);
      if (event.may_retry) continue;  // its sender asks again
      refuse(expert, roster_.at(pending.node), event.reason);
      answer(pending, verdict(expert, pending.commit, pb::COMMIT_REFUSED, event.reason));
    }
  }
}

void Commits::answer(const PendingCommit& pending, const pb::CommitReply& verdict) {
  pb::ControlReply message;
  message.set_id(pending.request);
  *message.mutable_commit() = verdict;
  context.reply(pending.asker, std::move(message));
}

bool Commits::is_wanted(const Hash& manifest) const {
  return objects_.is_named(manifest) || runs_.is_pending(manifest) ||
         adoptions_.waits_for(manifest);
}

// A cancelled fetch removes what is here of its object. Where durable state
// names the object, that is what its disk has kept of it. An object that leaves
// is dropped once that is durable.
void Commits::cancel_fetch(const Hash& manifest) {
  if (!objects_.is_named(manifest) && !objects_.is_leaving(manifest) &&
      !datasets_.is_fetching(manifest) && !copies_.is_repairing(manifest) &&
      !runs_.is_pending(manifest))
    effects.cancel_fetches.push_back(manifest);
}

void Commits::accept(Expert& expert, const Node& node, const pb::Commit& commit,
                     const StoredObject& object) {
  stored::Expert& record = expert.record.change();
  const Run& run = runs_.of(expert);
  const std::size_t places =
      copies_.hosts_with(expert, *Hash::from_raw(commit.manifest().manifest()), node.id());
  if (expert.commit->pending &&
      expert.commit->pending->manifest.raw() == commit.manifest().manifest()) {
    expert.commit.edit().pending.reset();  // it is the head in a moment: who holds it goes on
  } else {
    drop_pending(expert);
  }
  measure(run, expert, node, commit);
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
  checkpoint.set_node(node.id().str());
  checkpoint.set_committed_unix_ms(now.unix_ms);
  *checkpoint.mutable_metrics() = commit.metrics();
  objects_.name(checkpoint.manifest());
  history_.add(expert.id(), point_of(checkpoint, node));

  const auto keep = static_cast<int>(std::max<std::uint32_t>(run.record->spec().keep(), 1));
  google::protobuf::RepeatedPtrField<stored::Checkpoint> kept;
  *kept.Add() = std::move(checkpoint);
  for (const stored::Checkpoint& older : record.checkpoints()) {
    if (kept.size() < keep) {
      *kept.Add() = older;
    } else {
      objects_.unname(older.manifest(), Purpose::kCheckpoint);
    }
  }
  record.mutable_checkpoints()->Swap(&kept);
  copies_.changed(expert);
  record.set_attempt_at_commit(record.attempt());
  record.mutable_lease()->set_rounds(record.lease().rounds() + 1);
  record.mutable_lease()->set_rounds_of_width(record.lease().rounds_of_width() + 1);
  context.must_reschedule = true;
  events_.tell(EventKind::kCommitted,
               text("steps ", commit.from_step(), " to ", commit.to_step(), ", loss ",
                    commit.metrics().loss(), places > 0 ? text(", in ", places + 1, " places") : "",
                    places < expert.copies->places.size()
                        ? "; other copies are still to come: its node is going away"
                        : ""),
               node.record->name(), &expert, commit.to_step());
}

// This clock knows how long the node has trained in this lease, and how far it
// came. A node that claims to be more than twice as fast is not measured: it
// lies, or it had to wait for long. Several cards are compared with the time of
// one, and the first commit with them has the start of their engine in it.
void Commits::measure(const Run& run, const Expert& expert, const Node& node,
                      const pb::Commit& commit) {
  const std::uint32_t slot = expert.record->lease().slot();
  const double said = commit.metrics().train_seconds();
  if (slot >= node.session->slots.size() || !expert.lease->trains_since || !(said > 0)) return;
  const std::uint32_t cards = std::max(1U, commit.metrics().cards());
  if (cards > expert.cards() || (cards > 1 && expert.record->lease().rounds_of_width() == 0))
    return;
  const double passed =
      std::chrono::duration<double>(now.boot - *expert.lease->trains_since).count();
  const auto in_lease = static_cast<double>(commit.to_step() - expert.lease->trains_from);
  const Step steps = commit.to_step() - commit.from_step();
  if (said / static_cast<double>(steps) < passed / in_lease / 2 / cards) return;
  speeds_.measured(node.id(), node.session->slots[slot].device(),
                   job_of(run, run.is_router(expert.record->index())), steps, said, cards);
}

void Commits::tell_fenced(Expert& expert, const Node& node, Epoch epoch, Step step,
                          const std::string& reason) {
  const std::pair told(node.id(), epoch);
  if (expert.commit->fenced_told == told) return;
  expert.commit.edit().fenced_told = told;
  events_.tell(EventKind::kFenced, reason, node.record->name(), &expert, step);
}

void Commits::refuse(Expert& expert, const Node& node, const std::string& reason) {
  const std::pair told(node.id(), reason);
  if (expert.commit->refused_told == told) return;
  expert.commit.edit().refused_told = told;
  events_.tell(EventKind::kRefused, reason, node.record->name(), &expert, expert.step());
}

}  // namespace skerry::coordinator
