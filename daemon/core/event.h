// SPDX-License-Identifier: Apache-2.0
// The events of the daemon's core. The host and the simulation translate
// sockets, processes, disks and signals into these plain values. `engine`
// numbers the engine processes of this daemon, so that a killed engine's
// message is never taken for its successor's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::daemon {

// The expert and step of a checkpoint, from its manifest.
struct CheckpointFacts {
  ExpertId expert;
  Step step = 0;
};

// The control connection. The host reopens it after every loss.
struct ConnectionOpened {};
struct ConnectionClosed {
  std::string reason;
};
// A reply on control, validated by the host (protocol/validate.h). It may be
// late, duplicated, reordered or lost.
struct Reply {
  pb::ControlReply reply;
};
// Time has passed. The host sends one no later than Effects::wake_at; extra
// ones are harmless.
struct Tick {};

// ---- Messages from the engine of a slot -------------------------------------

// The engine's program was started, or entered the next phase before Ready.
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
// A snapshot in shared memory is ready to be stored.
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
// The engine's process ended: always its last event. Every StartEngine leads to
// one eventually.
struct EngineExited {
  std::uint32_t slot = 0;
  std::uint64_t engine = 0;
  std::string how;                      // "exit code 1", "signal 9", "cannot start: …"
  std::vector<std::string> last_lines;  // of its standard error
  bool killed_for_memory = false;       // by a SIGKILL that the daemon did not send
  // The engine never ran: its checkpoint to resume from is missing or damaged.
  std::optional<Error> resume_error;
};

// ---- Disk, objects and signals ----------------------------------------------

// The snapshot is stored as a durable local checkpoint under this name, or
// could not be stored (kExhausted: the disk is full).
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

// The object of a FetchObject is durable and every hash verified, or it cannot
// be fetched now.
struct ObjectStored {
  Hash manifest;
  pb::Transfer transfer;  // what was transferred; without a manifest: nothing was
  std::optional<CheckpointFacts> checkpoint = std::nullopt;  // if it is one
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

// The Write with this ticket, and every earlier one, is durable.
struct Persisted {
  std::uint64_t ticket = 0;
};

// The complete list of files that belong to the checkpoints this node keeps.
// The node must hold them too.
struct HoldFiles {
  std::vector<pb::ObjectRef> files;
};
// This run was deleted: the node need not keep its objects.
struct RunGone {
  std::string run;
};

// SIGTERM. A second one exits at once.
struct DrainRequested {};
// The platform ends this machine, or advises to expect that. It is the same for
// every cloud and for a job manager's signal.
struct NoticeReceived {
  // CLOCK_BOOTTIME of the end; none: advice, the node only takes no new lease.
  std::optional<Duration> deadline;
  std::string what;  // the platform's word; empty without a deadline: no advice any more
};

// The answer to Effects::count_cards: the slots whose cards CUDA does not show
// any more. None, too, if it does not answer.
struct CardsCounted {
  std::vector<std::uint32_t> lost;
};

// The command of --idle-exec ended, or could not be started.
struct IdleExecEnded {
  bool ok = false;  // exit code 0
  std::string how;  // "exit code 1"
};

// The answer to Effects::collect_log.
struct LogCollected {
  std::uint64_t request = 0;
  std::vector<std::string> lines;
};

using Event =
    std::variant<ConnectionOpened, ConnectionClosed, Reply, Tick, EngineStarting, EngineReady,
                 EngineProgress, EngineSnapshot, EngineFailed, EngineFinished, EngineExited,
                 SnapshotStored, SnapshotFailed, ObjectStored, ObjectFailed, PeerFaulted,
                 ObjectProgress, Persisted, HoldFiles, RunGone, DrainRequested, NoticeReceived,
                 IdleExecEnded, CardsCounted, LogCollected>;

}  // namespace skerry::daemon
