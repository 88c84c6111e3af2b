// SPDX-License-Identifier: Apache-2.0
// The loop of the coordinator's program: waits for the transport and the disk
// workers, and hands what comes to the host.
//
// THREADS: one.
#pragma once

#include "base/result.h"
#include "base/worker.h"
#include "coordinator/host/host.h"
#include "protocol/transport.h"

namespace skerry::coordinator {

// Serves until `stop` can be read, then finishes the batches under way.
// `completions`: of both workers.
// ON FAILURE: the host's failure, or the transport's.
Result<void> run(Host& host, protocol::ServerTransport& transport, Completions& completions,
                 int stop);

}  // namespace skerry::coordinator
