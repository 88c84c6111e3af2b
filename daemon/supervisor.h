// The engines of a daemon: starts and stops them and turns what they say into the core's events. One thread, the main one.
// A word that breaks the channel's rules ends the engine that said it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/effects.h"
#include "daemon/engine_process.h"
#include "daemon/event.h"

namespace skerry::daemon {

// Shared memory with a snapshot in it; outlives its engine as long as somebody stores it.
struct Snapshot {
  UniqueFd memory;
  std::uint64_t bytes = 0;
};

class Supervisor {
 public:
  // `command` begins each engine's: the program, then e.g. "train".
  explicit Supervisor(std::vector<std::string> command, Duration end_limit = kEngineEndLimit)
      : command_(std::move(command)), end_limit_(end_limit) {}
  // Ends all engines, within `end_limit` together: one that its driver holds is named in the log and left.
  ~Supervisor();
  Supervisor(Supervisor&&) = default;
  Supervisor& operator=(Supervisor&&) = default;

  // `resume` is empty for a start from nothing; `card` as of EngineProcess::spawn. A failure becomes EngineExited.
  void start(const StartEngine& order, pb::EngineRequest::Start start, UniqueFd resume,
             const std::string& card = "");
  void stop(const StopEngine& order);
  void plan(const PlanRound& order);
  bool runs(std::uint64_t engine) const { return engines_.contains(engine); }

  // The snapshot that an engine showed last; null where there is none.
  std::shared_ptr<const Snapshot> snapshot(std::uint64_t engine) const;
  // Nobody needs it any more; its engine, if it lives, may write again.
  void release_snapshot(std::uint64_t engine);

  // To poll for reading.
  std::vector<int> descriptors() const;
  // Reads what there is, and flushes what waits to be written.
  void pump();
  // A child ended. False: not an engine of ours.
  bool reaped(pid_t pid, int status);

  bool has_events() const { return !events_.empty(); }
  pid_t process_id(std::uint64_t engine) const;  // REQUIRES: runs(engine)

  std::vector<Event> take_events() { return std::exchange(events_, {}); }
  // What engines printed, with their slot, for the log.
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }

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
  std::map<std::uint64_t, std::shared_ptr<Snapshot>> snapshots_;
  std::vector<Event> events_;
  std::vector<std::string> lines_;
};

}  // namespace skerry::daemon
