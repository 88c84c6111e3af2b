// SPDX-License-Identifier: Apache-2.0
// What can happen to a daemon's core. Values only: the host turns sockets,
// processes, disks and signals into these, and so does the simulation. `engine`
// numbers the engine processes of this daemon, so that a word from one that was
// killed is never taken for its successor's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::daemon {

// Whose a checkpoint is, as its manifest says.
struct CheckpointFacts {
  ExpertId expert;
  Step step = 0;
};

// The control connection; opened again after every loss.
struct ConnectionOpened {};
struct ConnectionClosed {
  std::string reason;
};
// Validated by the host (protocol/validate.h); may be late, doubled, reordered
// or missing.
struct Reply {
  pb::ControlReply reply;
};
// Time has passed: at the latest at Effects::wake_at, at any moment harmless.
struct Tick {};

// The engine of a slot: what its channel said … Its program was started, and
// then what it does before Ready.
struct EngineStarting {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  std::string phase;
};
struct EngineReady {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineEvent::Ready ready;
};
struct EngineProgress {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineEvent::Progress progress;
};
// A snapshot stands in the shared memory and is to be stored.
struct EngineSnapshot {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineEvent::Snapshot snapshot;
};
struct EngineFailed {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineEvent::Failed failed;
};
struct EngineFinished {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::EngineEvent::Finished finished;
};
// … and its end: always the last event of an engine, and the answer to every
// StartEngine sooner or later.
struct EngineExited {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  std::string how;                      // "exit code 1", "signal 9", "cannot start: …"
  std::vector<std::string> last_lines;  // of its standard error
  bool killed_for_memory = false;       // SIGKILL that nobody here sent
  std::optional<Error>
      resume_error;  // it never ran: the checkpoint to resume from is not here as it was
};

// The snapshot is a durable local checkpoint of this name, or could not be made
// one (kExhausted: the disk is full).
struct SnapshotStored {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  pb::ObjectRef object;
};
struct SnapshotFailed {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  Error error;
};

// An object asked for by FetchObject is here whole, every hash right, on disk;
// or is not to be had now.
struct ObjectStored {
  Hash manifest;
  pb::Transfer transfer;  // what came of it; without a manifest: nothing did
  std::optional<CheckpointFacts> checkpoint = std::nullopt;  // where it is one
};
struct ObjectFailed {
  Hash manifest;
  Error error;
};
struct PeerFaulted {
  pb::PeerFault fault;
};
struct ObjectProgress {
  Hash manifest;
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;
};

// The Write of this ticket, and every one before it, is durable.
struct Persisted {
  std::uint64_t ticket = 0;
};

// Files that go with the checkpoints which this node keeps, all of them: they
// are to be here too.
struct HoldFiles {
  std::vector<pb::ObjectRef> files;
};
// This run was deleted: nothing of it need be kept.
struct RunGone {
  std::string run;
};

// SIGTERM; the second one leaves at once.
struct DrainRequested {};

// The answer to Effects::collect_log.
struct LogCollected {
  std::uint64_t request = 0;
  std::vector<std::string> lines;
};

using Event =
    std::variant<ConnectionOpened, ConnectionClosed, Reply, Tick, EngineStarting, EngineReady,
                 EngineProgress, EngineSnapshot, EngineFailed, EngineFinished, EngineExited,
                 SnapshotStored, SnapshotFailed, ObjectStored, ObjectFailed, PeerFaulted,
                 ObjectProgress, Persisted, HoldFiles, RunGone, DrainRequested, LogCollected>;

}  // namespace skerry::daemon
