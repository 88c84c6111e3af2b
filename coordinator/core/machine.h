// SPDX-License-Identifier: Apache-2.0
// The core's implementation: the rooms and one handler for each event. Private
// to this folder.
//
// A handler calls rooms, which change records and add effects. finish() numbers
// the batch of those changes and makes the sends wait for it. Nothing here does
// I/O.
#pragma once

#include <span>

#include "coordinator/core/rooms.h"

namespace skerry::coordinator {

struct Machine : Rooms {
  using Rooms::Rooms;

  // load.cc
  Result<void> load(std::span<const KeyValue> state);
  Result<void> load_entry(const KeyValue& entry);
  Result<void> check_links();

  // core.cc
  Effects start(Now at);
  Effects step(const Event& event, Now at);
  void finish();
  void tick();
  void turn_away(const TurnedAway& event);
  void enrol(const EnrolReceived& event);
  void records_heard(const RecordsReceived& event);
  void received(const Received& event);
  void dispatch(Node& node, const Received& event);

  // sessions.cc
  void hello(Node& node, const Received& event);
  void greet_node(Node& node, const pb::Hello& hello);
  void heartbeat(Node& node, const Received& event);

  // transfers.cc
  void transferred(const Node& node, const pb::Transfer& transfer);
  void peer_faulted(const Node& node, const pb::PeerFault& fault);

  // object_events.cc
  void object_stored(const ObjectStored& event);
  void object_failed(const ObjectFailed& event);
  // Decides a pending commit again.
  void try_commit(Expert& expert);
  void decide_waiting();
  // Asks these nodes for an object that this disk has lost.
  void repair(const Hash& manifest, const std::vector<NodeId>& from);

  // admin.cc
  void admin(Node& person, const Received& event);
  void reply_to(const Node& person, const Received& event, Result<pb::AdminReply> result);

  Duration next_forgetting{};
  Duration next_tick{};
};

}  // namespace skerry::coordinator
