// SPDX-License-Identifier: Apache-2.0
// What the coordinator's disk must hold after a crash: the state after some
// whole batch, at least the last that was reported durable (S6, S7). Keeps its
// own account of the batches, beside the disk's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/watcher.h"

namespace skerry::simulation {

// Whether a record names the object: an expert its checkpoints, a dataset its
// files.
bool is_named(const Durable& durable, const std::string& manifest);

class DiskRules {
 public:
  // What is wrong with what the step wants written; nothing if it is right.
  std::string stepped(const coordinator::Event* event, const coordinator::Effects& effects);
  // What is wrong with what a start finds; nothing if it is right.
  std::string started(const Durable& durable);
  void restored(const Durable& durable);
  std::size_t events() const {
    return events_;
  }  // of the log, as of the last batch that was reported durable
  // The most of these that name one node, and that node.
  std::pair<std::size_t, std::string> most_events_of_a_node() const;
  // Durably, as far as its process was told.
  bool is_revoked(const std::string& node) const;
  // Whether a batch on its way to the disk names this manifest: after a crash
  // it may be there.
  bool is_named_by_pending(const std::string& manifest) const;

 private:
  struct Batch {
    std::uint64_t number = 0;
    std::vector<coordinator::Write> writes;
  };
  void apply_first();
  void take(const Durable& durable);
  void count_event(const std::string& record, int by);

  Durable sure_;            // as of the last batch that was reported durable
  std::size_t events_ = 0;  // in it
  std::map<std::string, std::size_t> events_of_node_;
  std::string
      last_event_;  // the highest key of an event that was written since the start, or was there
  std::deque<Batch> pending_;  // handed to the disk since
};

}  // namespace skerry::simulation
