// SPDX-License-Identifier: Apache-2.0
// The nodes themselves, with or without a coordinator: what their records say,
// and objects from whoever holds them. The seam that lets commands be tested
// without a network. Thread rule: one thread at a time.
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
  // How fast the node sends to here: takes up to a few seconds' worth of this
  // object, which it holds, and throws it away. kUnavailable: it cannot be
  // dialled, or does not answer.
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
