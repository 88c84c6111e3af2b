// SPDX-License-Identifier: Apache-2.0
// The engine as the child of a daemon: it obeys the requests of a socket pair
// until the pair closes.
//
// Phases:
// - Waiting for Start: the daemon sends first.
// - Training: the engine reads the channel between steps.
// - Leaving: after Finished or Failed, or silently when the channel closes.
//
// The engine takes a snapshot at a round's end if the daemon has released the
// one before (SnapshotDone). Otherwise it waits for a later round's end. Before
// it leaves in order, it waits for that release.
#pragma once

#include "base/clock.h"
#include "protocol/channel.h"

namespace skerry::engine {

// Binds this process to its parent's life and serves the descriptor.
// RETURNS: the program's exit status.
int train_channel(int descriptor);

// The same on a channel, without touching the process: for tests.
int serve_training(protocol::Channel channel, const Clock& clock);

}  // namespace skerry::engine
