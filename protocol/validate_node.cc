// SPDX-License-Identifier: Apache-2.0
// Checks the requests of daemons, and the coordinator's answers.
#include <set>

#include "protocol/fields.h"
#include "protocol/identity.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "protocol/validate_parts.h"

namespace skerry::protocol::parts {
namespace {

using namespace fields;

constexpr std::uint64_t kObjectBytes = std::uint64_t{1} << 44;
constexpr std::uint64_t kTransferMillis = std::uint64_t{1} << 40;

Result<void> validate_lines(std::string_view field,
                            const google::protobuf::RepeatedPtrField<std::string>& lines) {
  TRY(count_at_most(field, lines.size(), kLogLines));
  for (const std::string& line : lines) TRY(text_at_most(field, line, kLogLineBytes));
  return {};
}

Result<void> validate_slot_number(std::uint32_t slot) {
  return in_range<std::uint32_t>("slot", slot, 0, static_cast<std::uint32_t>(kSlots) - 1);
}

Result<void> validate_step(std::string_view field, std::uint64_t step) {
  return in_range<std::uint64_t>(field, step, 0, kSteps);
}

Result<void> validate_held(const pb::HeldLease& held) {
  TRY(validate_expert(held.run(), held.expert()));
  TRY(validate_slot_number(held.slot()));
  TRY(validate_step("held.step", held.step()));
  return length_or_empty("held.head", held.head(), kKeyBytes);
}

Result<void> validate_transfer(const pb::Transfer& transfer) {
  TRY(length("transfer.manifest", transfer.manifest(), kKeyBytes));
  TRY(in_range<std::uint64_t>("transfer.bytes", transfer.bytes(), 0, kObjectBytes));
  TRY(in_range<std::uint64_t>("transfer.millis", transfer.millis(), 0, kTransferMillis));
  TRY(count_at_most("transfer.sources", transfer.sources_size(), kTransferSources));
  for (const pb::TransferSource& source : transfer.sources()) {
    TRY(text_at_most("transfer.source", source.peer(), kRecordTextBytes));
    TRY(in_range<std::uint64_t>("transfer.source.bytes", source.bytes(), 0, kObjectBytes));
  }
  return {};
}

Result<void> validate_fault(const pb::PeerFault& fault) {
  TRY(text_at_most("fault.peer", fault.peer(), kRecordTextBytes));
  if (!pb::PeerFault::Kind_IsValid(fault.kind()) ||
      fault.kind() == pb::PeerFault::FAULT_UNSPECIFIED)
    return bad("fault.kind", "a known kind", text(static_cast<int>(fault.kind())));
  return length("fault.manifest", fault.manifest(), kKeyBytes);
}

Result<void> validate_slot_assignment(const pb::SlotAssignment& slot) {
  TRY(validate_slot_number(slot.slot()));
  TRY(count_at_most("assignment.more_slots", slot.more_slots_size(), kSlots - 1));
  std::set<std::uint32_t> held = {slot.slot()};
  for (const std::uint32_t more : slot.more_slots()) {
    TRY(validate_slot_number(more));
    if (!held.insert(more).second)
      return bad("assignment.more_slots", "each slot once", text(more, " twice"));
  }
  TRY(validate_expert(slot.run(), slot.expert()));
  TRY(validate_run_spec(slot.spec()));
  TRY(validate_model(slot.model()));
  TRY(count_at_most("assignment.shards", slot.shards_size(), kDatasetFiles));
  for (const pb::ObjectRef& shard : slot.shards()) TRY(validate(shard));
  TRY(validate_partitions(slot.model(), slot.partitions(), slot.shards_size()));
  if (!slot.head().manifest().empty()) TRY(validate(slot.head()));
  TRY(validate_step("assignment.head_step", slot.head_step()));
  return validate_step("assignment.steps_target", slot.steps_target());
}

}  // namespace

Result<void> validate_expert(std::string_view run, std::uint32_t expert) {
  TRY(validate_name(run, "run"));
  return in_range<std::uint32_t>("expert", expert, 0,
                                 kPartitions);  // one past the partitions: the router's job
}

Result<void> validate(const pb::ObjectRef& object) {
  TRY(length("object.manifest", object.manifest(), kKeyBytes));
  TRY(in_range<std::uint64_t>("object.manifest_bytes", object.manifest_bytes(), 1, kChunkBytes));
  TRY(in_range<std::uint64_t>("object.bytes", object.bytes(), 0, kObjectBytes));
  if (object.name().empty()) return {};
  return validate_name(object.name(), "object name");
}

Result<void> validate_slots(const google::protobuf::RepeatedPtrField<pb::Slot>& slots) {
  TRY(count_at_most("slots", slots.size(), kSlots));
  for (const pb::Slot& slot : slots) {
    TRY(validate_slot_number(slot.index()));
    TRY(text_at_most("slot.device", slot.device(), kLogLineBytes));
  }
  return {};
}

Result<void> validate(const pb::Hello& hello) {
  // The answer decides about the version: it says which one the coordinator
  // speaks.
  TRY(text_at_most("hello.software", hello.software(), kLogLineBytes));
  TRY(text_at_most("hello.host_label", hello.host_label(), kLogLineBytes));
  TRY(in_range<std::uint64_t>("hello.generation", hello.generation(), 0, kGenerations));
  TRY(in_range("hello.price", hello.price(), 0.0, kPriceMost));
  TRY(validate_slots(hello.slots()));
  TRY(count_at_most("hello.held", hello.held_size(), kSlots));
  for (const pb::HeldLease& held : hello.held()) TRY(validate_held(held));
  return {};
}

Result<void> validate(const pb::SlotStatus& status) {
  TRY(validate_slot_number(status.slot()));
  if (!status.run().empty()) TRY(validate_expert(status.run(), status.expert()));
  if (!pb::SlotPhase_IsValid(status.phase())) {
    return bad("slot.phase", "a known phase", text(static_cast<int>(status.phase())));
  }
  TRY(validate_step("slot.step", status.step()));
  TRY(finite("slot.loss", status.loss()));
  return not_negative("slot.samples_per_second", status.samples_per_second());
}

Result<void> validate(const pb::Heartbeat& heartbeat) {
  TRY(count_at_most("heartbeat.slots", heartbeat.slots_size(), kSlots));
  for (const pb::SlotStatus& status : heartbeat.slots()) TRY(validate(status));
  TRY(count_at_most("heartbeat.replicas", heartbeat.replicas_size(), kReplicas));
  for (const pb::ReplicaStatus& replica : heartbeat.replicas()) {
    TRY(length("replica.manifest", replica.manifest(), kKeyBytes));
    TRY(in_range<std::uint64_t>("replica.bytes", replica.bytes(), 0, kObjectBytes));
  }
  TRY(count_at_most("heartbeat.transfers", heartbeat.transfers_size(), kTransfers));
  for (const pb::Transfer& transfer : heartbeat.transfers()) TRY(validate_transfer(transfer));
  TRY(count_at_most("heartbeat.faults", heartbeat.faults_size(), kPeerFaults));
  for (const pb::PeerFault& fault : heartbeat.faults()) TRY(validate_fault(fault));
  TRY(in_range<std::uint64_t>("heartbeat.leaves_in_ms", heartbeat.leaves_in_ms(), 0, kLeavesInMs));
  return text_at_most("heartbeat.notice", heartbeat.notice(), kNoticeBytes);
}

Result<void> validate(const pb::Commit& commit) {
  TRY(validate_expert(commit.run(), commit.expert()));
  TRY(in_range<std::uint64_t>("commit.to_step", commit.to_step(), 1, kSteps));
  if (commit.from_step() >= commit.to_step()) {
    return bad("commit.from_step", text("less than to_step ", commit.to_step()),
               text(commit.from_step()));
  }
  TRY(length_or_empty("commit.parent", commit.parent(), kKeyBytes));
  TRY(validate(commit.manifest()));
  TRY(finite("commit.metrics.loss", commit.metrics().loss()));
  TRY(finite("commit.metrics.gradient_norm", commit.metrics().gradient_norm()));
  TRY(not_negative("commit.metrics.train_seconds", commit.metrics().train_seconds()));
  TRY(in_range<std::uint32_t>("commit.metrics.cards", commit.metrics().cards(), 0,
                              static_cast<std::uint32_t>(kSlots)));
  return text_at_most("commit.fingerprint", commit.fingerprint(), kReasonBytes);
}

Result<void> validate(const pb::ReturnLease& lease) {
  TRY(validate_expert(lease.run(), lease.expert()));
  return text_at_most("return_lease.reason", lease.reason(), kReasonBytes);
}

Result<void> validate(const pb::EngineReport& report) {
  TRY(validate_expert(report.run(), report.expert()));
  if (!pb::EngineEvent::Failure_IsValid(report.failure())) {
    return bad("engine_report.failure", "a known kind", text(static_cast<int>(report.failure())));
  }
  TRY(text_at_most("engine_report.reason", report.reason(), kReasonBytes));
  return validate_lines("engine_report.last_lines", report.last_lines());
}

Result<void> validate(const pb::NodeLog& log) {
  return validate_lines("node_log.lines", log.lines());
}

Result<void> validate(const pb::HelloReply& reply) {
  TRY(in_range<std::uint64_t>("hello.generation", reply.generation(), 0, kGenerations));
  TRY(in_range<std::uint32_t>("hello.heartbeat_ms", reply.heartbeat_ms(), 1, 3'600'000));
  TRY(in_range<std::uint32_t>("hello.lease_ms", reply.lease_ms(), 1, 86'400'000));
  if (!pb::Role_IsValid(reply.role()))
    return bad("hello.role", "a known role", text(static_cast<int>(reply.role())));
  TRY(text_at_most("hello.peers", reply.peers(), 2 * kPeersBytes));
  return text_at_most("hello.name", reply.name(), kNameBytes);
}

Result<void> validate(const pb::HeartbeatReply& reply) {
  TRY(count_at_most("heartbeat.renewed", reply.renewed_size(), kSlots));
  for (const pb::RenewedLease& renewed : reply.renewed())
    TRY(validate_expert(renewed.run(), renewed.expert()));
  return {};
}

Result<void> validate(const pb::Assignment& assignment) {
  TRY(count_at_most("assignment.slots", assignment.slots_size(), kSlots));
  for (const pb::SlotAssignment& slot : assignment.slots()) TRY(validate_slot_assignment(slot));
  TRY(count_at_most("assignment.replicas", assignment.replicas_size(), kReplicas));
  for (const pb::Replica& replica : assignment.replicas()) {
    TRY(validate_expert(replica.run(), replica.expert()));
    TRY(validate(replica.object()));
    TRY(count_at_most("replica.shards", replica.shards_size(), kDatasetFiles));
    for (const pb::ObjectRef& shard : replica.shards()) TRY(validate(shard));
  }
  return {};
}

Result<void> validate(const pb::CommitReply& reply) {
  if (!pb::CommitStatus_IsValid(reply.status()) || reply.status() == pb::COMMIT_UNSPECIFIED) {
    return bad("commit.status", "a known status", text(static_cast<int>(reply.status())));
  }
  TRY(validate_expert(reply.run(), reply.expert()));
  if (!reply.head().manifest().empty()) TRY(validate(reply.head()));
  TRY(validate_step("commit.head_step", reply.head_step()));
  return text_at_most("commit.reason", reply.reason(), kReasonBytes);
}

}  // namespace skerry::protocol::parts
