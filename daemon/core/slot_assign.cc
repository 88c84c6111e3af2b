// SPDX-License-Identifier: Apache-2.0
// Slot: what the assignment makes of it.
#include <utility>

#include "base/check.h"
#include "daemon/core/slot.h"

namespace skerry::daemon {
namespace {
constexpr std::size_t kBehindItems = 256;
}

Slot::Slot(pb::Slot description, Objects& objects, Session& session, Cards& cards,
           std::uint64_t& last_engine)
    : description_(std::move(description)),
      objects_(objects),
      session_(session),
      cards_(cards),
      last_engine_(last_engine) {}

void Slot::restore(Work work, Duration now) {
  work_ = std::move(work);
  start_after_ = now + kRestoredWait;
}

bool Slot::is_behind(const pb::SlotAssignment& next) const {
  const auto at = behind_.find(expert_of(next.run(), next.expert()));
  return at != behind_.end() && Epoch(next.epoch()) <= at->second;
}

void Slot::leave_behind() {
  if (behind_.size() >= kBehindItems) behind_.erase(behind_.begin());
  Epoch& epoch = behind_[work_->expert()];
  epoch = std::max(epoch, work_->epoch());
}

void Slot::assign(const pb::SlotAssignment* next, bool draining, Context& context) {
  if (next != nullptr && is_behind(*next)) next = nullptr;
  if (next != nullptr && work_ && work_->expert() == expert_of(next->run(), next->expert())) {
    if (next->epoch() < work_->assignment.epoch()) return;  // overtaken on its way
    if (next->epoch() == work_->assignment.epoch() &&
        next->attempt() == work_->assignment.attempt()) {
      update(*next, context);
      return;
    }
  }
  if (work_)
    discard(next == nullptr ? "no longer assigned" : "assigned anew", LogLevel::kInfo, context);
  left_.clear();
  if (next == nullptr) return;
  work_ = new_work(*next);
  if (is_behind(*next)) behind_.erase(work_->expert());  // the same epoch's next attempt
  context.dirty = true;
  start_after_ = {};
  session_.heartbeat_soon();
  if (draining) {
    give_back("drain", context);
    return;
  }
  leaving_ = next->yield_after_commit() ? Leaving::kYield : Leaving::kNo;
  context.log(LogLevel::kInfo,
              text(label(), ": taken up at step ", work_->head_step, ", epoch ", work_->epoch()));
}

void Slot::update(const pb::SlotAssignment& next, Context& context) {
  adopt_head(next.head(), next.head_step(), context);
  if (next.SerializeAsString() != work_->assignment.SerializeAsString()) {
    work_->assignment = next;
    context.dirty = true;
  }
  start_after_ = std::min(start_after_, context.now.boot + budget_.wait());
  if (leaving_ != Leaving::kDrain)
    leaving_ = next.yield_after_commit() ? Leaving::kYield : Leaving::kNo;
}

// The coordinator's head may be ahead of ours: the answer to a commit was lost,
// or comes later than this.
void Slot::adopt_head(const pb::ObjectRef& head, Step step, Context& context) {
  if (step <= work_->head_step) return;
  if (work_->in_flight && head.manifest() == work_->in_flight->object.manifest()) {
    pb::CommitReply reply;
    reply.set_status(pb::COMMIT_ACCEPTED);
    accepted(reply, context);
    return;
  }
  rewind(head, step, "the coordinator holds a later checkpoint", context);
}

void Slot::drain(Duration until) {
  leaving_ = Leaving::kDrain;
  drain_until_ = until;
}

void Slot::stay() {
  const bool yields = work_ && work_->assignment.yield_after_commit();
  leaving_ = yields ? Leaving::kYield : Leaving::kNo;
}

void Slot::renewed(const pb::RenewedLease& lease, Duration until) {
  if (!work_ || work_->expert() != expert_of(lease.run(), lease.expert()) ||
      work_->assignment.epoch() != lease.epoch()) {
    return;
  }
  lease_until_ = std::max(lease_until_, until);
  offline_rounds_ = 0;
}

void Slot::excuse(Duration stalled) {
  if (engine_) engine_->watch.excuse(stalled);
}

void Slot::forget_uncommitted() {
  work_->in_flight.reset();
  work_->latest.reset();
  storing_.reset();
  commit_id_ = 0;
  commit_tries_ = 0;
  commit_retry_ = {};
  commit_since_.reset();
}

void Slot::discard(const std::string& why, LogLevel level, Context& context) {
  SKERRY_CHECK(work_.has_value(), "nothing to discard");
  const Step trained = engine_ && !engine_->abandoned
                           ? std::max(engine_->step, work_->resume_step())
                           : work_->resume_step();
  const Step lost = trained - std::min(trained, work_->head_step);
  context.log(level, text(label(), ": ", why, "; ", lost, " uncommitted steps dropped"));
  abandon_engine(context);
  left_ = {work_->head};
  if (work_->in_flight) left_.push_back(work_->in_flight->object);
  if (work_->latest) left_.push_back(work_->latest->object);
  forget_uncommitted();
  leave_behind();
  work_.reset();
  leaving_ = Leaving::kNo;
  block_ = Block::kNone;
  counts_cards_ = false;
  budget_.succeeded();
  lease_until_ = {};
  offline_rounds_ = 0;
  start_after_ = {};
  context.dirty = true;
}

void Slot::rewind(const pb::ObjectRef& head, Step step, const std::string& why, Context& context) {
  context.log(LogLevel::kWarning, text(label(), ": ", why, "; going on from step ", step));
  abandon_engine(context);
  forget_uncommitted();
  work_->head = head;
  work_->head_step = step;
  work_->head_loss = 0;
  context.dirty = true;
}

void Slot::give_back(const std::string& reason, Context& context) {
  pb::ControlRequest request;
  auto& lease = *request.mutable_return_lease();
  lease.set_run(work_->assignment.run());
  lease.set_expert(work_->assignment.expert());
  lease.set_epoch(work_->assignment.epoch());
  lease.set_reason(reason);
  session_.post(std::move(request));
  discard("lease returned: " + reason, LogLevel::kInfo, context);
}

}  // namespace skerry::daemon
