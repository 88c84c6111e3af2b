// SPDX-License-Identifier: Apache-2.0
// What nodes report of leases: given back, and engines that failed.
#include "base/text.h"
#include "coordinator/rooms/leases.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

const char* words(const pb::EngineReport& report) {
  if (report.card_fault()) return "card fault";
  switch (report.failure()) {
    case pb::EngineEvent::FAILURE_OUT_OF_MEMORY:
      return "out of memory";
    case pb::EngineEvent::FAILURE_NON_FINITE:
      return "non-finite weights";
    case pb::EngineEvent::FAILURE_BAD_INPUT:
      return "bad input";
    default:
      return "engine failure";
  }
}

}  // namespace

void Leases::return_lease(const Node& node, const pb::ReturnLease& returned) {
  Expert* expert = runs_.find_expert(RunId(returned.run()), returned.expert());
  if (expert != nullptr && expert->is_held_by(node, Epoch(returned.epoch()))) {
    const Run& run = runs_.of(*expert);
    const bool asked = expert->lease->asked_back || node.record->draining() ||
                       node.session->self_draining || !run.active();
    // Given back unasked: it cannot train this one, so another node is tried
    // before it.
    if (!asked) avoid(*expert, node);
    const std::string& reason = expert->lease->yield ? expert->lease->why : returned.reason();
    release(*expert, EventKind::kLeaseReturned,
            reason.empty() ? "it gave no reason" : std::string(reason));
  }
}

void Leases::engine_report(const Node& node, const pb::EngineReport& report) {
  Expert* expert = runs_.find_expert(RunId(report.run()), report.expert());
  const std::string digest = blake2b(report.SerializeAsString()).raw();
  if (expert != nullptr && expert->is_held_by(node, Epoch(report.epoch())) &&
      report.attempt() == expert->record->attempt() && expert->lease->last_report != digest) {
    state(*expert).last_report = digest;
    std::string reason = text(words(report), ": ", report.reason());
    for (const std::string& line : report.last_lines()) {
      if (reason.size() + line.size() > protocol::kReasonBytes) break;
      reason += " | " + line;
    }
    events_.tell(EventKind::kEngineFailed, reason, node.record->name(), expert, expert->step());
    if (report.failure() == pb::EngineEvent::FAILURE_NON_FINITE) {
      raise_attempt(runs_.of(*expert), *expert, report.reason());
    }
    // The report that uses up the attempts has returned the lease already.
    if (report.gives_up() && expert->has_lease()) {
      avoid(*expert, node);
      if (report.failure() == pb::EngineEvent::FAILURE_OUT_OF_MEMORY) too_small(*expert, node);
      release(*expert, EventKind::kLeaseReturned,
              text("it gave up: ", words(report), ": ", report.reason()));
    }
  }
}

// What a node reports outweighs the plan: its device gets no job of this kind
// of this run again.
void Leases::too_small(Expert& expert, const Node& node) {
  constexpr int kMost = 64;
  Run& run = runs_.of(expert);
  const std::uint32_t slot = expert.record->lease().slot();
  if (slot >= node.session->slots.size() || run.record->too_small_size() >= kMost) return;
  stored::TooSmall each;
  each.set_device(node.session->slots[slot].device());
  each.set_node(node.id().str());
  each.set_router(run.is_router(expert.record->index()));
  const std::string same = each.SerializeAsString();
  for (const stored::TooSmall& known : run.record->too_small()) {
    if (known.SerializeAsString() == same) return;
  }
  *run.record.change().add_too_small() = std::move(each);
}

// Another random stream from the head on. Only this raises the attempt: a lost
// node or a killed engine does not.
void Leases::raise_attempt(Run& run, Expert& expert, const std::string& reason) {
  commits_.drop_pending(expert);
  lose_uncommitted(expert);
  expert.record.change().set_attempt(expert.record->attempt() + 1);
  roster_.assignment_changed(expert.holder());
  if (expert.record->attempt() - expert.record->attempt_at_commit() < config.attempts) return;
  const std::string why = text(run.job_name(expert.record->index()), " used up its ",
                               config.attempts, " attempts at step ", expert.step(), ": ", reason);
  if (run.active()) runs_.set_wanted(run, stored::WANTED_FAILED, why);
  release(expert, EventKind::kLeaseReturned, why);
}

}  // namespace skerry::coordinator
