// SPDX-License-Identifier: Apache-2.0
// The effects of a step of the daemon's core. perform.h carries them out in the
// order it states. Writes come first. If a message depends on a write, the core
// waits for Persisted before it sends the message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "protocol/skerry.pb.h"

namespace skerry::daemon {

enum class ObjectKind { kShard, kCheckpoint };

// The daemon's whole state (daemon/state.proto, serialised); replaces the last.
// Writes are applied in order; the host may skip a write if it applies a later
// one.
struct Write {
  std::uint64_t ticket = 0;
  std::string state;
};

struct FetchObject {
  pb::ObjectRef object;
  ObjectKind kind = ObjectKind::kShard;
  bool verify = false;  // the copy on disk is suspect: hash every byte again
};

// Starts an engine, at step 0 if `resume` is empty. Answered by EngineReady or
// EngineExited.
struct StartEngine {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineRequest::Start start;      // the host fills in shard_paths, resume_bytes and device
  std::vector<pb::ObjectRef> shards;   // stored
  pb::ObjectRef resume;                // stored checkpoint
  std::vector<std::uint32_t> cards{};  // the slots of these, start.cards of them
};

enum class StopKind {
  kSnapshotNow,  // end the round here, snapshot, exit
  kFinishRound,  // snapshot at the round's planned end, exit
  kKill,         // SIGKILL at once; steps after the last snapshot are lost
};
struct StopEngine {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  StopKind kind = StopKind::kKill;
};

struct PlanRound {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineRequest::RoundPlan plan;
};

// Stores the snapshot in the engine's shared memory as a checkpoint, then sends
// SnapshotDone to the engine. These fields go into the manifest. Answered by
// SnapshotStored or SnapshotFailed, even if the engine has exited by then.
struct StoreSnapshot {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  std::string run;
  std::uint32_t expert = 0;
  std::uint64_t epoch = 0;
  std::uint32_t attempt = 0;
  std::uint64_t from_step = 0;  // the parent's
  std::uint64_t step = 0;
  std::string parent;  // raw hash; empty: none
  std::string fingerprint;
};

struct DropObject {
  Hash manifest;
  ObjectKind kind = ObjectKind::kCheckpoint;
};

struct LogEntry {
  LogLevel level = LogLevel::kInfo;
  std::string message;
};

// Answered by IdleExecEnded, once.
enum class IdleExecOrder { kStart, kKill };

struct Effects {
  std::vector<Write> writes;
  std::vector<pb::ControlRequest> sends;
  std::vector<FetchObject> fetches;
  std::vector<Hash> cancels;
  std::vector<StopEngine> stops;
  std::vector<PlanRound> plans;
  std::vector<StoreSnapshot> stores;
  std::vector<StartEngine> starts;
  std::vector<DropObject> drops;
  std::vector<LogEntry> log;
  std::optional<IdleExecOrder> idle_exec;
  bool count_cards = false;                  // answered by CardsCounted
  std::optional<std::uint64_t> collect_log;  // answered by LogCollected
  std::optional<Duration> wake_at;           // CLOCK_BOOTTIME of the next Tick
  std::optional<int> exit_code;              // kill the engines and end the process
};

}  // namespace skerry::daemon
