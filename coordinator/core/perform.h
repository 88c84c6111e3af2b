// SPDX-License-Identifier: Apache-2.0
// Carries out the effects of the coordinator's core, in the one order that all
// hosts keep:
//
//   1. write        the batch of this step goes to the disk first, so that what follows may depend on it
//   2. send         answers that depend on no batch
//   3. roster       a key that is taken out hears nothing of what follows
//   4. cancel, then fetch   an object that one step cancels and fetches begins anew
//   5. drop         durable state names these objects no more, and nothing wants them
//   6. verify
//   7. send         answers that waited for batches that are durable by now, in the order of the steps
//   8. disconnect   after the answers of its step
//   9. read, seek   their outcome is another event
//  10. wake         the time of the next Tick
//
// An answer that waits for a batch never overtakes one that waits for an
// earlier batch (S7).
//
// THREADS: one thread, the host's.
#pragma once

#include <cstddef>
#include <deque>

#include "coordinator/core/core.h"

namespace skerry::coordinator {

// What a host does with each effect. A call may bring events about: the host
// queues them (base/event_queue.h).
class Sink {
 public:
  virtual ~Sink() = default;

  // Makes the batch durable, after those before it; then the core is fed
  // Persisted.
  virtual void write(Batch batch) = 0;
  // Everything that the answer says is durable.
  virtual void send(Send message) = 0;
  virtual void change_roster(const std::vector<RosterChange>& changes) = 0;
  virtual void cancel(const Hash& object) = 0;
  virtual void fetch(const Fetch& order) = 0;
  virtual void drop(const Drop& order) = 0;
  virtual void verify(const Hash& object) = 0;
  virtual void disconnect(const ConnectionId& connection) = 0;
  virtual void read(const Hash& object) = 0;
  virtual void seek(const RunId& run) = 0;
  // Boot time; replaces the one before.
  virtual void wake_at(Duration boot) = 0;
};

class Performer {
 public:
  // LIFETIME: `sink` outlives it.
  explicit Performer(Sink& sink) : sink_(&sink) {}

  // `durable`: the core's persisted_batch() after the step.
  void perform(Effects effects, std::uint64_t durable);
  // Answers that wait for their batches.
  std::size_t waiting() const { return waiting_.size(); }

 private:
  Sink* sink_;
  std::deque<Send> waiting_;  // the batches that they wait for never go down from one to the next
};

}  // namespace skerry::coordinator
