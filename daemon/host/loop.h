// SPDX-License-Identifier: Apache-2.0
// The loop of the daemon's program. It waits for the transport, the engines,
// the disk worker, other nodes and signals at once, and hands each event to the
// host.
//
// THREADS: one, which also made the engines.
#pragma once

#include "base/clock.h"
#include "base/notify.h"
#include "base/worker.h"
#include "daemon/host/host.h"
#include "daemon/host/notice_watcher.h"
#include "daemon/host/supervisor.h"
#include "protocol/transport.h"

namespace skerry::daemon {

struct LoopParts {
  const Clock& clock;
  protocol::ClientTransport& transport;
  Supervisor& engines;
  Completions& completions;  // of the disk worker
  Notifier& notifier;
  int signals = -1;  // a signalfd of SIGTERM, SIGINT, SIGUSR1 and SIGCHLD
  const protocol::PeerLinks* network = nullptr;  // none: the coordinator is the only one to talk to
  IdleCommand* idle_exec = nullptr;              // none: there is no --idle-exec
  NoticeWatcher* notices = nullptr;              // none: nobody waits for the node to leave
};

// Starts the host and serves until it must end. RETURNS: the process's exit
// status.
int run(Host& host, const LoopParts& parts);

}  // namespace skerry::daemon
