// What nodes report beside commits: leases given back, engines that failed, log lines.
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"
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

void Machine::return_lease(Node& node, const Received& event) {
  const pb::ReturnLease& returned = event.request.return_lease();
  Expert* expert = runs.find_expert(returned.run(), returned.expert());
  const bool anyones = planted("anyone_returns") && expert != nullptr && expert->has_lease();
  if (expert != nullptr && (holds(*expert, node, returned.epoch()) || anyones)) {
    const Run& run = runs.at(returned.run());
    const bool asked =
        expert->asked_back || node.record->draining() || node.session->self_draining || !run.active();
    // Given back unasked: it cannot train this one, so another node is tried before it.
    if (!asked) expert->avoid[node.record->id()] = {node.record->incarnation(), now.boot + config.avoid};
    const std::string& reason = expert->yield ? expert->why : returned.reason();
    release(*expert, "lease_returned", reason.empty() ? "it gave no reason" : std::string(reason));
  }
  acknowledge(event.connection, event.request.id());
}

void Machine::engine_report(Node& node, const Received& event) {
  const pb::EngineReport& report = event.request.engine_report();
  Expert* expert = runs.find_expert(report.run(), report.expert());
  const std::string digest = blake2b(report.SerializeAsString()).raw();
  const bool anyones = planted("anyone_reports") && expert != nullptr && expert->has_lease();
  if (expert != nullptr && (holds(*expert, node, report.epoch()) || anyones) &&
      report.attempt() == expert->record->attempt() && expert->last_report != digest) {
    expert->last_report = digest;
    std::string reason = text(words(report), ": ", report.reason());
    for (const std::string& line : report.last_lines()) {
      if (reason.size() + line.size() > protocol::kReasonBytes) break;
      reason += " | " + line;
    }
    events.tell("engine_failed", reason, node.record->name(), expert, expert->step());
    if (report.failure() == pb::EngineEvent::FAILURE_NON_FINITE) {
      raise_attempt(runs.at(report.run()), *expert, report.reason());
    }
    // The report that uses up the attempts has returned the lease already.
    if (report.gives_up() && expert->has_lease()) {
      expert->avoid[node.record->id()] = {node.record->incarnation(), now.boot + config.avoid};
      release(*expert, "lease_returned", text("it gave up: ", words(report), ": ", report.reason()));
    }
  }
  acknowledge(event.connection, event.request.id());
}

// Another random stream from the head on. Only this raises the attempt: a lost node or a killed engine does not.
void Machine::raise_attempt(Run& run, Expert& expert, const std::string& reason) {
  drop_pending(expert);
  expert.record.change().set_attempt(expert.record->attempt() + 1);
  roster.assignment_changed(expert.record->lease().node());
  if (expert.record->attempt() - expert.record->attempt_at_commit() < config.attempts) return;
  const std::string why = text(run.job_name(expert.record->index()), " used up its ", config.attempts,
                               " attempts at step ", expert.step(), ": ", reason);
  if (run.active()) runs.set_wanted(run, stored::WANTED_FAILED, why);
  release(expert, "lease_returned", why);
}

void Machine::node_log(Node& node, const Received& event) {
  roster.keep_log(node, event.request.node_log());
  acknowledge(event.connection, event.request.id());
}

}  // namespace skerry::coordinator
