// SPDX-License-Identifier: Apache-2.0
// What a daemon's core wants done. perform.h carries it out, in the one order
// that it states. Writes come first: where a message depends on one, the core
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

// The daemon's whole state (daemon/state.proto, serialised), replacing the
// last. Writes are applied in order; a later one may stand for those before it.
struct Write {
  std::uint64_t ticket = 0;
  std::string state;
};

struct FetchObject {
  pb::ObjectRef object;
  ObjectKind kind = ObjectKind::kShard;
  bool verify = false;  // it may be here already: believe no byte that is not hashed again
};

// resume empty: from the start. Answered by EngineReady or EngineExited.
struct StartEngine {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineRequest::Start start;     // shard_paths, resume_bytes and device are the host's to fill
  std::vector<pb::ObjectRef> shards;  // stored
  pb::ObjectRef resume;               // stored checkpoint
};

enum class StopKind {
  kSnapshotNow,  // end the round here, snapshot, leave
  kFinishRound,  // snapshot at the round's own end, leave
  kKill,         // at once, and by SIGKILL; what was not snapshot is lost
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

// Makes the snapshot that stands in the engine's memory a checkpoint; then the
// engine is told SnapshotDone. The manifest carries these words. Answered by
// SnapshotStored or SnapshotFailed, even when the engine is gone by then.
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
  std::optional<std::uint64_t> collect_log;  // answer with LogCollected
  std::optional<Duration> wake_at;           // CLOCK_BOOTTIME: a Tick is due then
  std::optional<int> exit_code;              // engines are killed, the process ends
};

}  // namespace skerry::daemon
