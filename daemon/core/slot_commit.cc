// SPDX-License-Identifier: Apache-2.0
// Slot: getting stored checkpoints accepted, one at a time.
#include <utility>

#include "base/check.h"
#include "daemon/core/slot.h"

namespace skerry::daemon {

std::optional<double> cost_of(Duration took, const pb::ObjectRef& object) {
  if (object.bytes() == 0) return std::nullopt;
  return std::chrono::duration<double>(took).count() / static_cast<double>(object.bytes());
}

std::string Slot::label() const {
  return work_ ? text(work_->expert()) : text("slot ", description_.index());
}

// While a snapshot is being stored nothing new is sent: its manifest already
// names its parent.
void Slot::commit_if_due(Context& context) {
  if (!work_ || !work_->has_uncommitted() || !session_.is_open()) return;
  if (lease_until_ <= context.now.boot) return;  // woken by the renewal
  if (!work_->in_flight) {
    if (storing_) return;
    work_->in_flight = std::move(work_->latest);
    work_->latest.reset();
    commit_id_ = 0;
    commit_tries_ = 0;
    commit_since_ = context.now.boot;
    context.dirty = true;
  }
  const bool is_new = commit_id_ == 0 && commit_tries_ == 0;
  if (is_new || context.due(commit_retry_)) send_commit(context);
}

void Slot::send_commit(Context& context) {
  const Checkpoint& checkpoint = *work_->in_flight;
  if (commit_tries_ == 0) {
    context.log(LogLevel::kInfo,
                text(label(), ": committing steps ", work_->head_step, " to ", checkpoint.step));
  }
  pb::ControlRequest request;
  request.set_id(commit_id_ = session_.next_id());
  auto& commit = *request.mutable_commit();
  commit.set_run(work_->assignment.run());
  commit.set_expert(work_->assignment.expert());
  commit.set_epoch(work_->assignment.epoch());
  commit.set_attempt(work_->assignment.attempt());
  commit.set_from_step(work_->head_step);
  commit.set_to_step(checkpoint.step);
  commit.set_parent(work_->head.manifest());
  *commit.mutable_manifest() = checkpoint.object;
  *commit.mutable_metrics() = checkpoint.metrics;
  commit.set_fingerprint(checkpoint.fingerprint);
  context.out.sends.push_back(std::move(request));
  commit_retry_ =
      context.now.boot +
      std::min(kCommitRetryFirst * (1U << std::min(commit_tries_, 10U)), kCommitRetryLast);
  ++commit_tries_;
  context.wake(commit_retry_);
}

void Slot::connection_lost() {
  commit_id_ = 0;
  commit_tries_ = 0;
  commit_since_.reset();
}

void Slot::on_commit(const pb::CommitReply& reply, Context& context) {
  SKERRY_CHECK(work_ && work_->in_flight, "a commit's answer is waited for without a commit");
  switch (reply.status()) {
    case pb::COMMIT_FETCHING:
      // The same id may be answered again once it is decided; commit_retry_
      // asks if that word is lost.
      return;
    case pb::COMMIT_ACCEPTED:
      accepted(reply, context);
      return;
    case pb::COMMIT_FENCED:
      discard("fenced: another epoch is current", LogLevel::kWarning, context);
      return;
    case pb::COMMIT_STALE_PARENT:
      rewind(reply.head(), reply.head_step(), "the commit's parent is not the head", context);
      return;
    case pb::COMMIT_REFUSED:
      abandon_engine(context);
      forget_uncommitted();
      context.dirty = true;
      failed(pb::EngineEvent::FAILURE_INTERNAL, "commit refused: " + reply.reason(), {}, context);
      return;
    default:
      return;  // of a newer minor version: asked again
  }
}

void Slot::on_commit_error(const pb::Error& error, Context& context) {
  if (error.code() == to_string(ErrorCode::kFenced)) {
    discard("fenced: " + error.message(), LogLevel::kWarning, context);
    return;
  }
  context.log(LogLevel::kWarning, text(label(), ": commit not taken now: ", error.message()));
}

void Slot::accepted(const pb::CommitReply& reply, Context& context) {
  commit_id_ = 0;
  commit_tries_ = 0;
  commit_retry_ = {};
  budget_.succeeded();
  offline_rounds_ = 0;
  const bool other =
      is_set(reply.head()) && reply.head().manifest() != work_->in_flight->object.manifest();
  if (other) {
    rewind(reply.head(), reply.head_step(), "this span was committed before, by other bytes",
           context);
    return;
  }
  if (commit_since_) {
    commit_cost_ = cost_of(context.now.boot - *commit_since_, work_->in_flight->object);
    commit_since_.reset();
  }
  work_->committed();
  context.dirty = true;
  context.log(LogLevel::kInfo, text(label(), ": committed step ", work_->head_step));
}

}  // namespace skerry::daemon
