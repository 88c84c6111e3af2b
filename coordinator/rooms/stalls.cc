// SPDX-License-Identifier: Apache-2.0
// Ends leases that come no nearer to a commit. Their node is connected, but
// cannot fetch, store or send, and would cost money without end.
#include <algorithm>

#include "base/text.h"
#include "coordinator/rooms/leases.h"

namespace skerry::coordinator {
namespace {

constexpr double kRoundsAhead = 2;  // training beyond these is no progress

}  // namespace

// Steps count while the next commit is not overdue. A node may train further;
// that alone brings no commit nearer.
bool Leases::is_due(const Expert& expert, Step step) const {
  const pb::RunSpec& spec = runs_.of(expert).record->spec();
  const LeaseState& its = *expert.lease;
  if (spec.round_steps() > 0)
    return static_cast<double>(step - std::min(step, expert.step())) <=
           kRoundsAhead * static_cast<double>(spec.round_steps());
  const double since = std::chrono::duration<double>(now.boot - its.committed).count();
  return since <= kRoundsAhead * spec.round_seconds();
}

void Leases::hear_progress(Expert& expert, Step step, std::uint64_t fetched) {
  LeaseState& its = state(expert);
  const bool fetches = fetched > its.fetched;
  const bool trains = step > its.trained && is_due(expert, step);
  its.fetched = fetched;
  // Past its budget, only what ends the lease counts.
  if ((fetches || trains) && !runs_.of(expert).record->over_budget()) its.progressed = now.boot;
}

void Leases::receives(const Hash& manifest) {
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      if (expert.commit->pending && expert.commit->pending->manifest == manifest)
        state(expert).progressed = now.boot;
    }
  }
}

void Leases::end_stalled() {
  if (roster_.is_recovering()) trusted_from_ = now.boot;
  for (auto& [id, run] : runs_.all()) {
    const bool is_spent = run.record->over_budget();
    const Duration limit = is_spent ? config.stall_over_budget : config.stall;
    for (Expert& expert : run.experts) {
      if (!expert.held()) continue;
      LeaseState& its = state(expert);
      if (std::exchange(its.spent, is_spent) != is_spent || commits_.is_held_up(expert))
        its.progressed = now.boot;
      if (std::exchange(its.stepped_from, expert.step()) != expert.step())
        its.progressed = its.committed = now.boot;
      if (now.boot - std::max(its.progressed, trusted_from_) < limit) continue;
      const Node& node = roster_.at(expert.holder());
      avoid(expert, node);
      take_away(expert, EventKind::kLeaseLost,
                text(node.record->name(), " has neither committed nor sent anything for ",
                     human_duration(limit), ": look at its log, its disk and its network"));
    }
  }
}

}  // namespace skerry::coordinator
