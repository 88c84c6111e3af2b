// SPDX-License-Identifier: Apache-2.0
// The engines of a daemon: starts and stops them and turns what they say into
// the core's events. One thread, the main one. A word that breaks the channel's
// rules ends the engine that said it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/effects.h"
#include "daemon/core/event.h"
#include "daemon/host/engine_process.h"
#include "daemon/host/engines.h"

namespace skerry::daemon {

// In memory that it shares with its engine.
struct SharedSnapshot final : Snapshot {
  SharedSnapshot() = default;
  SharedSnapshot(UniqueFd its_memory, std::uint64_t its_bytes)
      : memory(std::move(its_memory)), bytes(its_bytes) {}
  Result<storage::Safetensors> tensors() const override {
    return storage::Safetensors::map(memory.get(), bytes);
  }
  UniqueFd memory;
  std::uint64_t bytes = 0;
};

class Supervisor final : public Engines {
 public:
  // `command` begins each engine's: the program, then e.g. "train".
  explicit Supervisor(std::vector<std::string> command, Duration end_limit = kEngineEndLimit)
      : command_(std::move(command)), end_limit_(end_limit) {}
  // Ends all engines, within `end_limit` together: one that its driver holds is
  // named in the log and left.
  ~Supervisor() override;
  Supervisor(Supervisor&&) = default;
  Supervisor& operator=(Supervisor&&) = default;

  void start(const StartEngine& order, pb::EngineRequest::Start start,
             std::unique_ptr<storage::File> resume, const std::string& card) override {
    start_with(order, std::move(start), resume ? resume->descriptor() : -1, card);
  }
  // `resume`: −1 for a start from nothing, and else the caller's; `card` as of
  // EngineProcess::spawn.
  void start_with(const StartEngine& order, pb::EngineRequest::Start start, int resume,
                  const std::string& card = "");
  void stop(const StopEngine& order) override;
  void plan(const PlanRound& order) override;
  bool runs(std::uint64_t engine) const { return engines_.contains(engine); }

  std::shared_ptr<const Snapshot> snapshot(std::uint64_t engine) const override;
  void release_snapshot(std::uint64_t engine) override;

  // To poll for reading.
  std::vector<int> descriptors() const;
  // Reads what there is, and flushes what waits to be written.
  void pump();
  // A child ended. False: not an engine of ours.
  bool reaped(pid_t pid, int status);

  bool has_events() const { return !events_.empty(); }
  pid_t process_id(std::uint64_t engine) const;  // REQUIRES: runs(engine)

  std::vector<Event> take_events() override { return std::exchange(events_, {}); }
  std::vector<std::string> take_lines() override { return std::exchange(lines_, {}); }

 private:
  struct Engine {
    std::uint32_t slot = 0;
    EngineProcess process;
    bool ended = false;  // its channel has
  };
  void pump_channel(std::uint64_t id, Engine& engine);
  void pump_output(Engine& engine);
  void take_frame(std::uint64_t id, Engine& engine, protocol::Channel::Frame frame);
  void took_snapshot(std::uint64_t id, Engine& engine, const pb::EngineEvent::Snapshot& said,
                     UniqueFd memory);
  void broke_rules(std::uint64_t id, Engine& engine, const std::string& how);
  void say(std::uint64_t id, const pb::EngineRequest& request, int descriptor = -1);
  void exited(std::uint64_t id);

  std::vector<std::string> command_;
  Duration end_limit_;
  std::map<std::uint64_t, Engine> engines_;
  std::map<std::uint64_t, std::shared_ptr<SharedSnapshot>> snapshots_;
  std::vector<Event> events_;
  std::vector<std::string> lines_;
};

}  // namespace skerry::daemon
