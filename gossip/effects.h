// SPDX-License-Identifier: Apache-2.0
// What gossip wants done. Nothing here is a promise that others wait for, so
// the order is free.
#pragma once

#include <string>
#include <vector>

#include "gossip/record.h"

namespace skerry::gossip {

// May be lost, late or twice.
struct Send {
  NodeId peer;
  pb::GossipMessage message;
};

// A wish to be connected: the address is in the record, the key in its
// certificate.
struct Dial {
  RecordPtr node;
};

// A peer broke the rules: close its connection. Until its ban is over nothing
// of it is heard.
struct Misbehaved {
  NodeId peer;
  std::string reason;
};

// For the event log: what is wrong is the author's doing.
struct Report {
  NodeId author;
  std::string reason;
};

struct Effects {
  std::vector<Send> sends;
  std::vector<Dial> dials;
  std::vector<NodeId> releases;  // connections that gossip needs no more; another part may
  std::vector<Misbehaved> misbehaved;
  std::vector<Report> reports;
  std::vector<RecordPtr> news;  // held since now
  std::vector<NodeId> revoked;  // nodes to be cut off: no connection, no record
};

}  // namespace skerry::gossip
