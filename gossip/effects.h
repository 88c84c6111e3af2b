// SPDX-License-Identifier: Apache-2.0
// Effects of gossip: what the host must do after a call. No other party waits
// for any of them, so their order is free.
#pragma once

#include <string>
#include <vector>

#include "gossip/record.h"

namespace skerry::gossip {

// Delivery may fail, be late or happen twice.
struct Send {
  NodeId peer;
  pb::GossipMessage message;
};

// A request to connect. The record holds the address, its certificate the key.
struct Dial {
  RecordPtr node;
};

// A peer broke the rules: close its connection. Its messages are dropped until
// the ban ends.
struct Misbehaved {
  NodeId peer;
  std::string reason;
};

// An error that the author caused, for the event log.
struct Report {
  NodeId author;
  std::string reason;
};

struct Effects {
  std::vector<Send> sends;
  std::vector<Dial> dials;
  // connections that gossip no longer needs; another part of the host may
  std::vector<NodeId> releases;
  std::vector<Misbehaved> misbehaved;
  std::vector<Report> reports;
  std::vector<RecordPtr> news;  // records that the table now holds
  std::vector<NodeId> revoked;  // nodes to cut off: no connection, no record
};

}  // namespace skerry::gossip
