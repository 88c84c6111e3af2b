// SPDX-License-Identifier: Apache-2.0
// What a person's programs remember of the nodes, so that these are known by
// name when the coordinator is gone: their signed records, in CONTEXT.peers. A
// convenience: what cannot be kept is not known next time, and nothing is said.
// One thread.
#pragma once

#include <string>

#include "base/clock.h"

namespace skerry::cli {

class PeerMemory {
 public:
  explicit PeerMemory(const std::string& context_path) : path_(context_path + ".peers") {}

  // SavedRecords; empty where nothing is kept.
  std::string read() const;
  void write(const std::string& saved) const;

  // Whether a minute has passed since the last write, and there is a folder to
  // write to.
  bool is_due(Now now) const;
  // Adds what a coordinator told (HelloReply.peers) and writes all of it. No
  // signature is checked: who reads it to use it checks every one.
  void add(const std::string& peers, const std::string& coordinator_key, Now now) const;

 private:
  std::string path_;
};

}  // namespace skerry::cli
