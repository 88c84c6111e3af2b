// SPDX-License-Identifier: Apache-2.0
// The engine as the child of a daemon: obeys the requests of a socket pair
// until it closes.
//
// Phases: waiting for Start (the daemon speaks first) → training, with a look
// at the channel between steps → leaving, after Finished or Failed, or without
// a word when the channel closes. A snapshot is taken at a round's end if the
// daemon has released the one before (SnapshotDone), else at a later round's
// end; before leaving in order, the engine waits for that release.
#pragma once

#include "base/clock.h"
#include "protocol/channel.h"

namespace skerry::engine {

// Binds this process to its parent's life and serves the descriptor. Returns
// the program's exit code.
int train_channel(int descriptor);

// The same on a channel, without touching the process: for tests.
int serve_training(protocol::Channel channel, const Clock& clock);

}  // namespace skerry::engine
