// SPDX-License-Identifier: Apache-2.0
// The engines of a daemon, as its host sees them: the host gives orders, and
// takes what the engines say as the core's events. Real ones are child
// processes (supervisor.h); a simulation has its own.
//
// ON FAILURE: an engine that cannot be started says so by EngineExited.
// THREADS: one, the host's. Any thread may read a Snapshot.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/effects.h"
#include "daemon/core/event.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace skerry::daemon {

// What an engine has trained, in memory; outlives its engine as long as
// somebody stores it.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual Result<storage::Safetensors> tensors() const = 0;
};

class Engines {
 public:
  virtual ~Engines() = default;
  // `resume`: the checkpoint, or null for a start from nothing. `cards`: those
  // that it sees, separated by commas; empty: what the host sees.
  virtual void start(const StartEngine& order, pb::EngineRequest::Start start,
                     std::unique_ptr<storage::File> resume, const std::string& cards) = 0;
  virtual void stop(const StopEngine& order) = 0;
  virtual void plan(const PlanRound& order) = 0;
  // RETURNS: the snapshot that the engine showed last; null where there is
  // none.
  virtual std::shared_ptr<const Snapshot> snapshot(std::uint64_t engine) const = 0;
  // Nobody needs the snapshot any more; its engine, if it lives, may write
  // again.
  virtual void release_snapshot(std::uint64_t engine) = 0;
  // RETURNS: what engines said since the last call, in order.
  virtual std::vector<Event> take_events() = 0;
  // RETURNS: what engines printed since the last call, with their slot, for the
  // log.
  virtual std::vector<std::string> take_lines() = 0;
};

}  // namespace skerry::daemon
