// SPDX-License-Identifier: Apache-2.0
// The command of --idle-exec, as a child process with all that it starts.
//
// ON FAILURE: a command that cannot be started has ended, with the reason.
// THREADS: one, the host's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "daemon/core/event.h"

namespace skerry::daemon {

// As the host sees it; a test has its own.
class IdleExec {
 public:
  virtual ~IdleExec() = default;
  virtual void start() = 0;
  // It and what it started; its end is told as ever.
  virtual void kill() = 0;
  // RETURNS: how it ended, once.
  virtual std::optional<IdleExecEnded> take_end() = 0;
};

class IdleCommand final : public IdleExec {
 public:
  // `command`: for /bin/sh -c.
  explicit IdleCommand(std::string command) : command_(std::move(command)) {}

  // It outlives this process: it may be what ends it.
  void start() override;
  void kill() override;
  std::optional<IdleExecEnded> take_end() override { return std::exchange(end_, std::nullopt); }
  // A child ended. RETURNS: whether it was this one.
  bool reaped(pid_t pid, int status);

 private:
  std::string command_;
  pid_t pid_ = -1;
  std::optional<IdleExecEnded> end_;
};

}  // namespace skerry::daemon
