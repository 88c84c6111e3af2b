// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/work.h"

#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace skerry::daemon {
namespace {

pb::SavedCheckpoint save_checkpoint(const Checkpoint& checkpoint) {
  pb::SavedCheckpoint saved;
  *saved.mutable_object() = checkpoint.object;
  saved.set_from_step(checkpoint.from_step);
  saved.set_step(checkpoint.step);
  *saved.mutable_metrics() = checkpoint.metrics;
  saved.set_fingerprint(checkpoint.fingerprint);
  return saved;
}

Checkpoint load_checkpoint(const pb::SavedCheckpoint& saved) {
  return {saved.object(), saved.from_step(), saved.step(), saved.metrics(), saved.fingerprint()};
}

}  // namespace

const pb::ObjectRef& Work::resume() const {
  if (latest) return latest->object;
  return in_flight ? in_flight->object : head;
}

Step Work::resume_step() const {
  if (latest) return latest->step;
  return in_flight ? in_flight->step : head_step;
}

void Work::add(Checkpoint stored) {
  if (latest) {
    stored.from_step = latest->from_step;
    stored.metrics = combine(latest->metrics, stored.metrics);
  } else {
    stored.from_step = in_flight ? in_flight->step : head_step;
  }
  latest = std::move(stored);
}

void Work::committed() {
  SKERRY_CHECK(in_flight.has_value(), "nothing is in flight");
  head = in_flight->object;
  head_step = in_flight->step;
  head_loss = in_flight->metrics.loss();
  in_flight.reset();
}

Work new_work(const pb::SlotAssignment& assignment) {
  return {.assignment = assignment, .head = assignment.head(), .head_step = assignment.head_step()};
}

Result<void> check_saved(const pb::SavedSlot& saved) {
  const auto check = [](const pb::ObjectRef& object, bool may_be_empty) -> Result<void> {
    if (may_be_empty && object.manifest().empty()) return {};
    TRY(Hash::from_raw(object.manifest()));
    return {};
  };
  TRY(check(saved.head(), true));
  TRY(check(saved.assignment().head(), true));
  for (const auto& shard : saved.assignment().shards()) TRY(check(shard, false));
  if (saved.has_in_flight()) TRY(check(saved.in_flight().object(), false));
  if (saved.has_latest()) TRY(check(saved.latest().object(), false));
  return {};
}

pb::SavedSlot save(const Work& work) {
  pb::SavedSlot saved;
  *saved.mutable_assignment() = work.assignment;
  *saved.mutable_head() = work.head;
  saved.set_head_step(work.head_step);
  saved.set_head_loss(work.head_loss);
  if (work.in_flight) *saved.mutable_in_flight() = save_checkpoint(*work.in_flight);
  if (work.latest) *saved.mutable_latest() = save_checkpoint(*work.latest);
  return saved;
}

Work load(const pb::SavedSlot& saved) {
  Work work{.assignment = saved.assignment(),
            .head = saved.head(),
            .head_step = saved.head_step(),
            .head_loss = saved.head_loss()};
  if (saved.has_in_flight()) work.in_flight = load_checkpoint(saved.in_flight());
  if (saved.has_latest()) work.latest = load_checkpoint(saved.latest());
  return work;
}

pb::Metrics combine(const pb::Metrics& first, const pb::Metrics& second) {
  const double total = static_cast<double>(first.samples() + second.samples());
  const auto mean = [&](double a, double b) {
    if (total == 0) return b;
    return (a * static_cast<double>(first.samples()) + b * static_cast<double>(second.samples())) /
           total;
  };
  pb::Metrics both;
  both.set_loss(mean(first.loss(), second.loss()));
  both.set_gradient_norm(mean(first.gradient_norm(), second.gradient_norm()));
  both.set_samples(first.samples() + second.samples());
  // Nobody measures by a span of several numbers of cards.
  const bool is_alike = first.cards() == second.cards();
  both.set_train_seconds(is_alike ? first.train_seconds() + second.train_seconds() : 0);
  both.set_cards(second.cards());
  return both;
}

}  // namespace skerry::daemon
