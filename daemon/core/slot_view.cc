// SPDX-License-Identifier: Apache-2.0
// Slot: what it says of itself.
#include "daemon/core/slot.h"

namespace skerry::daemon {

pb::SlotStatus Slot::status() const {
  pb::SlotStatus status;
  status.set_slot(description_.index());
  if (!work_ && cards_.is_lost(description_.index())) status.set_phase(pb::SLOT_FAILED);
  if (!work_) return status;
  status.set_run(work_->assignment.run());
  status.set_expert(work_->assignment.expert());
  status.set_epoch(work_->assignment.epoch());
  const SlotView seen = view({});
  status.set_phase(seen.phase);
  status.set_step(seen.step);
  if (engine_ && !engine_->abandoned) {
    status.set_loss(engine_->loss);
    status.set_samples_per_second(engine_->samples_per_second);
  }
  std::uint64_t bytes = 0;
  std::uint64_t total = 0;
  const auto count = [&](const pb::ObjectRef& object) {
    const auto progress = objects_.progress_of(name_of(object));
    bytes += progress.bytes;
    total += std::max(progress.total_bytes, object.bytes());
  };
  if (seen.phase == pb::SLOT_FETCHING) {
    for (const auto& shard : work_->assignment.shards()) count(shard);
    if (is_set(work_->resume())) count(work_->resume());
  }
  status.set_fetched_bytes(bytes);
  status.set_fetch_bytes(total);
  return status;
}

pb::HeldLease Slot::held() const {
  pb::HeldLease held;
  held.set_run(work_->assignment.run());
  held.set_expert(work_->assignment.expert());
  held.set_epoch(work_->assignment.epoch());
  held.set_slot(description_.index());
  held.set_step(view({}).step);
  held.set_head(work_->head.manifest());
  return held;
}

SlotView Slot::view(Duration now) const {
  SlotView view{.slot = description_.index(), .has_lease = work_.has_value()};
  if (!work_) return view;
  const bool runs = engine_ && !engine_->abandoned;
  view.expert = work_->expert();
  view.epoch = work_->epoch();
  view.step = runs ? std::max(engine_->step, work_->resume_step()) : work_->resume_step();
  view.committed_step = work_->head_step;
  view.head = work_->head.manifest();
  view.commit_in_flight = work_->in_flight.has_value();
  view.storing = storing_.has_value();
  view.may_commit = has_lease(now);
  view.lease_until = lease_until_;
  if (block_ != Block::kNone) {
    view.phase = pb::SLOT_FAILED;
  } else if (runs) {
    view.phase = engine_->phase == EnginePhase::kStarting ? pb::SLOT_STARTING : pb::SLOT_TRAINING;
  } else if (work_->has_uncommitted() || storing_) {
    view.phase = pb::SLOT_COMMITTING;
  } else {
    view.phase =
        work_->head_step < work_->assignment.steps_target() ? pb::SLOT_FETCHING : pb::SLOT_IDLE;
  }
  return view;
}

}  // namespace skerry::daemon
