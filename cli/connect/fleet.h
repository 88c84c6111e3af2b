// SPDX-License-Identifier: Apache-2.0
// The nodes themselves, with or without a coordinator: their records, and
// objects from the nodes that hold them. Tests put another fleet in its place
// and need no network.
// THREADS: one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "cli/connect/admin_client.h"
#include "gossip/table.h"

namespace skerry::cli {

class Fleet : public ObjectSource {
 public:
  // Reads records until `enough`, or until nothing new has come for a few
  // seconds. kUnavailable: nobody answered.
  virtual Result<void> learn(const std::function<bool()>& enough) = 0;
  // How fast the node sends to this machine. Fetches this object from it for up
  // to a few seconds, and drops the bytes.
  // REQUIRES: the node holds the object.
  // ON FAILURE: kUnavailable: it cannot be dialled, or does not answer.
  virtual Result<double> bytes_per_second(const gossip::Record& node, const Hash& object) = 0;
  // Valid until the next call.
  virtual const gossip::Table& table() const = 0;
  virtual Now now() const = 0;
};

// What a person dials: HOST:PORT#KEY, the node's Ed25519 key in hexadecimal.
// HOST:PORT#ID, an id or a name do for a node that `known` has a record of.
struct NodeAddress {
  std::string url;  // tcp://HOST:PORT
  std::string key;  // Ed25519, raw
};
Result<NodeAddress> parse_node_address(const std::string& text, const gossip::Table& known,
                                       Now now);

// With a person's context. `from`: as above; empty: the coordinator, for
// records only. Records are kept beside the context (peer_memory.h), so that
// nodes are known by name when the coordinator is gone. `clock` must outlive
// what is returned.
Result<std::unique_ptr<Fleet>> open_fleet(const std::string& context_path, const std::string& from,
                                          const Clock& clock);

}  // namespace skerry::cli
