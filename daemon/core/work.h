// SPDX-License-Identifier: Apache-2.0
// What a slot trains and how far its work has come: the committed head, the
// checkpoint whose commit is in flight, and the newest one that is stored but
// not sent. head ← in_flight ← latest, each the parent of the next.
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
  double head_loss = 0;  // 0: not known, it was another's commit
  std::optional<Checkpoint> in_flight;
  std::optional<Checkpoint> latest;

  ExpertId expert() const { return {RunId(assignment.run()), assignment.expert()}; }
  Epoch epoch() const { return Epoch(assignment.epoch()); }
  // Where an engine would go on from.
  const pb::ObjectRef& resume() const;
  Step resume_step() const;
  // The parent of what is stored next.
  const pb::ObjectRef& parent() const { return in_flight ? in_flight->object : head; }
  bool has_uncommitted() const { return in_flight || latest; }
  // A newer snapshot replaces one that was never sent and takes its span over.
  void add(Checkpoint stored);
  // `in_flight` is the head now.
  void committed();
};

Work new_work(const pb::SlotAssignment& assignment);
pb::SavedSlot save(const Work& work);
// kCorrupt where a field cannot be what was saved.
Result<void> check_saved(const pb::SavedSlot& saved);
Work load(const pb::SavedSlot& saved);  // REQUIRES: check_saved
// Means weighted by samples; sums.
pb::Metrics combine(const pb::Metrics& first, const pb::Metrics& second);

}  // namespace skerry::daemon
