// SPDX-License-Identifier: Apache-2.0
// A slot's work and its progress: the committed head, the checkpoint whose
// commit is in flight, and the newest stored checkpoint that was not sent. Each
// is the parent of the next: head ← in_flight ← latest.
#pragma once

#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "daemon/state.pb.h"

namespace skerry::daemon {

struct Checkpoint {
  pb::ObjectRef object;
  Step from_step = 0;
  Step step = 0;
  pb::Metrics metrics;  // over the span
  std::string fingerprint;
};

struct Work {
  pb::SlotAssignment assignment;
  pb::ObjectRef head;
  Step head_step = 0;
  double head_loss = 0;  // 0: unknown, another node committed it
  std::optional<Checkpoint> in_flight;
  std::optional<Checkpoint> latest;

  ExpertId expert() const { return {RunId(assignment.run()), assignment.expert()}; }
  Epoch epoch() const { return Epoch(assignment.epoch()); }
  // The checkpoint that an engine would resume from.
  const pb::ObjectRef& resume() const;
  Step resume_step() const;
  // The parent of the next stored checkpoint.
  const pb::ObjectRef& parent() const { return in_flight ? in_flight->object : head; }
  bool has_uncommitted() const { return in_flight || latest; }
  // A newer checkpoint replaces one that was never sent, and covers its steps.
  void add(Checkpoint stored);
  // Makes `in_flight` the head.
  void committed();
};

Work new_work(const pb::SlotAssignment& assignment);
pb::SavedSlot save(const Work& work);
// ON FAILURE: kCorrupt if save() cannot have written a field.
Result<void> check_saved(const pb::SavedSlot& saved);
Work load(const pb::SavedSlot& saved);  // REQUIRES: check_saved
// RETURNS: means weighted by samples, and sums.
pb::Metrics combine(const pb::Metrics& first, const pb::Metrics& second);

}  // namespace skerry::daemon
