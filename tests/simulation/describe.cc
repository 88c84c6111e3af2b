// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/describe.h"

#include "base/ids.h"
#include "base/text.h"

namespace skerry::simulation {
namespace {

std::string epoch_text(std::uint64_t value) { return text("epoch ", Epoch(value)); }

std::string lease_text(const std::string& run, std::uint32_t expert, std::uint64_t epoch,
                       const Trace& trace) {
  return text(expert_text(run, expert, trace), " ", epoch_text(epoch));
}

const char* status_text(pb::CommitStatus status) {
  switch (status) {
    case pb::COMMIT_FETCHING:
      return "fetching";
    case pb::COMMIT_ACCEPTED:
      return "accepted";
    case pb::COMMIT_FENCED:
      return "fenced";
    case pb::COMMIT_STALE_PARENT:
      return "stale parent";
    case pb::COMMIT_REFUSED:
      return "refused";
    default:
      return "unspecified";
  }
}

std::string admin_text(const pb::AdminRequest& request) {
  const auto* field =
      pb::AdminRequest::descriptor()->FindFieldByNumber(static_cast<int>(request.body_case()));
  std::string name = field == nullptr ? "?" : field->name();
  for (char& c : name) c = c == '_' ? ' ' : c;
  return name;
}

bool is_polling(const pb::AdminRequest& request) {
  return request.has_run_show() || request.has_dataset_show() || request.has_event_list();
}

}  // namespace

std::string expert_text(const std::string& run, std::uint32_t expert, const Trace& trace) {
  return text(trace.run(run), "/", expert);
}

std::string describe(const pb::ControlRequest& request, const Trace& trace) {
  switch (request.body_case()) {
    case pb::ControlRequest::kHello: {
      std::string held;
      for (const auto& lease : request.hello().held()) {
        held += text(held.empty() ? ", still trains " : " and ",
                     lease_text(lease.run(), lease.expert(), lease.epoch(), trace), " at step ",
                     lease.step());
      }
      const int slots = request.hello().slots_size();
      return slots == 0 ? "Hello" : text("Hello, ", slots, slots == 1 ? " slot" : " slots", held);
    }
    case pb::ControlRequest::kHeartbeat:
      return "";
    case pb::ControlRequest::kGetAssignment:
      return text("GetAssignment");
    case pb::ControlRequest::kCommit: {
      const auto& commit = request.commit();
      return text("Commit ", lease_text(commit.run(), commit.expert(), commit.epoch(), trace),
                  ", steps ", commit.from_step(), " to ", commit.to_step(), ", parent ",
                  trace.object(commit.parent()), ", manifest ",
                  trace.object(commit.manifest().manifest()));
    }
    case pb::ControlRequest::kReturnLease: {
      const auto& lease = request.return_lease();
      return text("ReturnLease ", lease_text(lease.run(), lease.expert(), lease.epoch(), trace),
                  ": ", lease.reason());
    }
    case pb::ControlRequest::kEngineReport: {
      const auto& report = request.engine_report();
      return text("EngineReport ", lease_text(report.run(), report.expert(), report.epoch(), trace),
                  ": ", report.reason(), report.gives_up() ? "; gives up" : "");
    }
    case pb::ControlRequest::kAdmin:
      return is_polling(request.admin()) ? "" : text("Admin ", admin_text(request.admin()));
    default:
      return "NodeLog";
  }
}

std::string describe(const pb::ControlReply& reply, const Trace& trace) {
  switch (reply.body_case()) {
    case pb::ControlReply::kError:
      return text("Error ", reply.error().code(), ": ", trace.readable(reply.error().message()));
    case pb::ControlReply::kHello:
      return text("Hello, ", reply.hello().name());
    case pb::ControlReply::kAssignment: {
      std::string slots;
      for (const auto& slot : reply.assignment().slots()) {
        slots += text(
            slots.empty() ? " " : "; ", "slot ", slot.slot(), " trains ",
            lease_text(slot.run(), slot.expert(), slot.epoch(), trace), " from ",
            slot.head().manifest().empty() ? "the start" : trace.object(slot.head().manifest()),
            " to step ", slot.steps_target(),
            slot.yield_after_commit() ? ", yields after its next commit" : "");
      }
      for (const auto& replica : reply.assignment().replicas()) {
        slots +=
            text(slots.empty() ? " " : "; ", "holds ", trace.object(replica.object().manifest()));
      }
      return text("Assignment:", slots.empty() ? " nothing" : slots);
    }
    case pb::ControlReply::kCommit: {
      const auto& commit = reply.commit();
      return text("Commit ", status_text(commit.status()), " ",
                  lease_text(commit.run(), commit.expert(), commit.epoch(), trace), ", head ",
                  trace.object(commit.head().manifest()),
                  commit.reason().empty() ? "" : ": " + trace.readable(commit.reason()));
    }
    case pb::ControlReply::kAck:
      return "Ack";
    case pb::ControlReply::kAdmin:
      return reply.admin().has_ack() ? "Ack" : "";
    default:
      return "";
  }
}

}  // namespace skerry::simulation
