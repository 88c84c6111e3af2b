// SPDX-License-Identifier: Apache-2.0
// Carries out the effects of the coordinator's core in the order that all hosts
// keep:
//
//   1. write        first: what follows may depend on this step's batch
//   2. send         replies that depend on no batch
//   3. roster       a removed key receives nothing that follows
//   4. cancel, then fetch   an object in both is fetched anew
//   5. drop         objects that nothing durable names and nothing needs
//   6. verify
//   7. send         replies whose batches are durable, in the steps' order
//   8. disconnect   after the replies of its step
//   9. read, seek   their result arrives as another event
//  10. wake         the time of the next Tick
//
// A reply that waits for a batch never overtakes one that waits for an earlier
// batch (S7).
//
// THREADS: one, the host's.
#pragma once

#include <cstddef>
#include <deque>

#include "coordinator/core/core.h"

namespace skerry::coordinator {

// How a host carries out each effect. A call may cause events: the host queues
// them (base/event_queue.h).
class Sink {
 public:
  virtual ~Sink() = default;

  // Makes the batch durable after all earlier batches, then feeds Persisted to
  // the core.
  virtual void write(Batch batch) = 0;
  // REQUIRES: all that the message says is durable.
  virtual void send(Send message) = 0;
  virtual void change_roster(const std::vector<RosterChange>& changes) = 0;
  virtual void cancel(const Hash& object) = 0;
  virtual void fetch(const Fetch& order) = 0;
  virtual void drop(const Drop& order) = 0;
  virtual void verify(const Hash& object) = 0;
  virtual void disconnect(const ConnectionId& connection) = 0;
  virtual void read(const Hash& object) = 0;
  virtual void seek(const RunId& run) = 0;
  // `boot` is boot time; replaces the earlier wake-up.
  virtual void wake_at(Duration boot) = 0;
};

class Performer {
 public:
  // LIFETIME: `sink` outlives it.
  explicit Performer(Sink& sink) : sink_(&sink) {}

  // `durable`: the core's persisted_batch() after the step.
  void perform(Effects effects, std::uint64_t durable);
  // RETURNS: how many replies wait for their batches.
  std::size_t waiting() const { return waiting_.size(); }
  // RETURNS: whether a reply to this request waits for its batch.
  bool is_to_answer(const ConnectionId& connection, std::uint64_t request) const;

 private:
  Sink* sink_;
  std::deque<Send> waiting_;  // their `after_batch` never decreases
};

}  // namespace skerry::coordinator
