// SPDX-License-Identifier: Apache-2.0
// What a node says: Hello, and heartbeats.
#include "base/text.h"
#include "coordinator/core/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

void Machine::hello(Node& node, const Received& event) {
  const pb::Hello& hello = event.request.hello();
  if (auto welcome = roster.connect(node, event); !welcome)
    return reply_error(event.connection, event.request.id(), welcome.error());
  if (node.is_node()) {
    leases.go_beyond(node.record->name(), hello.generation());
    greet_node(node, hello);
  }
  roster.describe(node, event);

  pb::ControlReply message;
  message.set_id(event.request.id());
  auto& answer = *message.mutable_hello();
  answer.mutable_version()->set_major(protocol::kVersionMajor);
  answer.mutable_version()->set_minor(protocol::kVersionMinor);
  answer.set_generation(meta->generation());
  answer.set_heartbeat_ms(
      static_cast<std::uint32_t>(config.heartbeat / std::chrono::milliseconds(1)));
  answer.set_lease_ms(static_cast<std::uint32_t>(config.lease / std::chrono::milliseconds(1)));
  answer.set_assignment_version(node.session->version);
  answer.set_node_id(node.record->id());
  answer.set_role(node.record->role());
  answer.set_name(node.record->name());
  answer.set_address(event.address);
  if (hello.wants_peers() && !node.is_node())
    answer.set_peers("");  // the host fills it: records are its own
  reply(event.connection, std::move(message));
  if (lacks_room && !node.is_node()) send_at_once();
}

void Machine::greet_node(Node& node, const pb::Hello& hello) {
  const stored::Node& record = *node.record;
  const bool same = record.incarnation() == hello.incarnation();
  roster.arrive(node, hello);
  if (!same) {
    leases.release_all(node, EventKind::kLeaseLost, text(record.name(), " was started again"),
                       false);
    roster.restart(node, hello.incarnation());
    copies.restart(node);
  }
  if (!same || !record.present()) {
    roster.appear(node, text(hello.slots_size(), hello.slots_size() == 1 ? " slot: " : " slots: ",
                             hello.slots(0).device()));
  }
  // Held all the while, or run out with nobody to take over: its work goes on
  // at the same epoch.
  leases.resume_all(node, static_cast<std::uint32_t>(hello.slots_size()));
  // What it offers of an epoch that is over is refused here already: it need
  // not be asked for a commit first.
  for (const pb::HeldLease& offered : hello.held()) {
    Expert* expert = runs.find_expert(RunId(offered.run()), offered.expert());
    const Epoch epoch(offered.epoch());
    if (expert == nullptr || epoch >= expert->epoch()) continue;
    leases.lose_beyond(node, expert->id(), epoch, offered.step());
    commits.tell_fenced(*expert, node, epoch, offered.step(),
                        text("it offers step ", offered.step(), " of epoch ", epoch, ", but epoch ",
                             expert->epoch(), " is current"));
  }
  if (node.session->version == 0 || !same) roster.assignment_changed(node.id());
}

// Answered at once, from what is durable already: never behind a write.
void Machine::heartbeat(Node& node, const Received& event) {
  const pb::Heartbeat& beat = event.request.heartbeat();
  if (beat.incarnation() != node.record->incarnation()) {
    reply_error(event.connection, event.request.id(), fail(ErrorCode::kConflict, kHelloFirst));
    return;
  }
  if (!roster.beat(node, beat)) return;
  copies.hear(node, beat);
  for (const pb::Transfer& transfer : beat.transfers()) {
    roster.fetched(node, transfer);
    transferred(node, transfer);
  }
  for (const pb::SlotStatus& status : node.session->status) leases.hear(node, status);
  for (const pb::PeerFault& fault : beat.faults()) peer_faulted(node, fault);

  pb::ControlReply message;
  message.set_id(event.request.id());
  auto& answer = *message.mutable_heartbeat();
  answer.set_sequence(beat.sequence());
  answer.set_assignment_version(roster.durable_version(node));
  if (!node.session->log_ready) answer.set_log_request(node.session->log_request);
  if (beat.idle() && leases.may_stop(node)) {
    roster.let_stop(node);
    answer.set_may_stop(true);
  }
  for (const ExpertId& id : *node.leases) {
    Expert& expert = runs.at(id);
    leases.resume_if_lapsed(expert, node);
    if (!leases.may_renew(expert)) continue;
    auto& renewed = *answer.add_renewed();
    renewed.set_run(id.run.str());
    renewed.set_expert(id.index);
    renewed.set_epoch(expert.record->epoch());
  }
  reply(event.connection, std::move(message));
  send_at_once();
}

}  // namespace skerry::coordinator
