// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/loop.h"

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace skerry::daemon {
namespace {

void take_signals(Host& host, const LoopParts& parts) {
  signalfd_siginfo signal{};
  while (::read(parts.signals, &signal, sizeof signal) == sizeof signal) {
    if (signal.ssi_signo == SIGTERM || signal.ssi_signo == SIGINT) host.on_drain();
    if (signal.ssi_signo == SIGUSR1) host.on_user_signal();
  }
  // Every child, also those that as process 1 of a container we only inherited.
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (parts.idle_exec == nullptr || !parts.idle_exec->reaped(pid, status))
      parts.engines.reaped(pid, status);
  }
}

Duration wait(const Host& host, const LoopParts& parts) {
  const Duration now = parts.clock.now().boot;
  Duration until = host.next_turn();
  if (const auto alive = parts.notifier.next_alive()) until = std::min(until, *alive);
  // Rounded up, so that the loop does not spin through a poll's last fraction
  // of a millisecond.
  return until <= now ? Duration{} : until - now + std::chrono::milliseconds(1);
}

void turn(Host& host, const LoopParts& parts) {
  std::vector<int> readable = parts.engines.descriptors();
  readable.push_back(parts.completions.descriptor());
  readable.push_back(parts.signals);
  const bool more_of_peers = host.poll_peers();
  if (parts.network != nullptr)
    std::ranges::copy(parts.network->descriptors(), std::back_inserter(readable));
  const auto ready = parts.transport.poll(
      more_of_peers ? Duration{} : wait(host, parts), readable,
      [&](protocol::ClientEvent event) { host.on_transport(std::move(event)); });
  if (!ready) return host.fatal("the transport failed: " + ready.error().message);
  const auto is_ready = [&](int fd) { return std::ranges::find(*ready, fd) != ready->end(); };
  if (is_ready(parts.completions.descriptor())) parts.completions.run();
  parts.engines.pump();
  if (is_ready(parts.signals)) take_signals(host, parts);
  host.turn();
  if (parts.notices != nullptr && host.core().has_left()) parts.notices->acknowledge();
  parts.notifier.alive(parts.clock.now().boot);
  parts.notifier.status(host.status_line());
}

}  // namespace

int run(Host& host, const LoopParts& parts) {
  host.start();
  parts.notifier.ready();
  while (!host.exit_code()) turn(host, parts);
  parts.notifier.stopping();
  host.stop();
  return *host.exit_code();
}

}  // namespace skerry::daemon
