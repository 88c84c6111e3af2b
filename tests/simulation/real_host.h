// SPDX-License-Identifier: Apache-2.0
// What a real host runs on in a simulation: a virtual clock, a disk that fails
// as disks do, and workers that the clock drives. RealDaemon and
// RealCoordinator build the product's hosts on it.
//
// THREADS: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/worker.h"
#include "protocol/identity.h"
#include "protocol/testing/fake_transport.h"
#include "storage/testing/faulty_files.h"
#include "storage/testing/faulty_store.h"
#include "storage/testing/memory_files.h"
#include "storage/testing/memory_store.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

// What all hosts of a seed share. The network's clock is the clock; World's
// timeline follows it.
struct RealGround {
  explicit RealGround(std::uint64_t seed) : world(seed, Trace::Keep::kLast), network(seed) {}
  World world;
  protocol::FakeNetwork network;
  std::function<void(const std::string& rule, const std::string& what)> violated;

  Duration now() const { return network.now(); }
  void tell(const std::string& line) {
    world.trace.add("host", line);
    world.trace.line([&] { return line; });
  }
};

protocol::Identity real_identity(std::uint64_t seed, const std::string& name);

class RealClock final : public Clock {
 public:
  static constexpr Duration kBooted = seconds(1000);  // before the simulation began
  explicit RealClock(const protocol::FakeNetwork& network) : network_(network) {}
  Now now() const override {
    return {kBooted + network_.now(), kEpochStart + network_.now() / milliseconds(1)};
  }

 private:
  const protocol::FakeNetwork& network_;
};

// A disk that outlives processes. What it refuses for want of room it has not
// touched.
class RealDisk {
 public:
  class Store final : public storage::MemoryStore {
   public:
    bool is_full = false;           // of chunks and files
    bool is_full_of_state = false;  // not even metadata fits
    Result<void> has_room(std::size_t bytes, bool metadata) const override;
  };
  static constexpr Duration kUsual = milliseconds(20);

  void make_room() { kept.is_full = kept.is_full_of_state = false; }
  // Ends every fault, also those that were planned.
  void heal();
  // Whether the store has failed for longer than a process may go on for.
  // REQUIRES: asked each time that a host which has not ended has run.
  bool is_outlived(Duration now);
  // The process has ended. REQUIRES: nothing of it is left. `machine`: it ended
  // with its machine, and what was not synced may be lost.
  void process_ended(std::uint64_t seed, bool machine);

  Store kept;
  storage::FaultyStore store{kept};
  storage::MemoryFiles kept_files;
  storage::FaultyFiles files{kept_files};
  Duration slowest = kUsual;  // job

 private:
  std::optional<Duration> failed_at_;
};

// Does its jobs one after the other, each after a while.
class RealWorker {
 public:
  Worker& worker() { return worker_; }
  // RETURNS: when a job is done at the earliest; Duration::max() where none
  // waits.
  Duration next() const { return due_; }
  // Plans the next job, if one waits and none is planned.
  void plan(Duration now, Dice& dice, Duration slowest);
  // REQUIRES: next() has come. Does the job; RETURNS: what follows on the loop.
  Done finish_job();
  void drop() { worker_.drop(); }

 private:
  ManualWorker worker_;
  Duration due_ = Duration::max();
};

}  // namespace skerry::simulation
