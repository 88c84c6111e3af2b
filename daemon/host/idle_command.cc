// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/idle_command.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/text.h"

namespace skerry::daemon {
namespace {

constexpr int kExecFailed = 127;

// Runs in the child between fork and exec, where only async-signal-safe calls
// are allowed. The daemon's log gets what it prints.
[[noreturn]] void become_shell(char* const* arguments) {
  ::setpgid(0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execv(arguments[0], arguments);
  ::_exit(kExecFailed);
}

}  // namespace

void IdleCommand::start() {
  if (pid_ > 0) return;
  std::string shell = "/bin/sh", option = "-c";
  const std::array<char*, 4> arguments = {shell.data(), option.data(), command_.data(), nullptr};
  pid_ = ::fork();
  if (pid_ == 0) become_shell(arguments.data());
  if (pid_ > 0) {
    ::setpgid(pid_, pid_);  // before a kill() that comes sooner than the child's own call
    return;
  }
  end_ = IdleExecEnded{false, text("cannot start /bin/sh: ", std::strerror(errno))};
}

void IdleCommand::kill() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

bool IdleCommand::reaped(pid_t pid, int status) {
  if (pid_ <= 0 || pid != pid_) return false;
  pid_ = -1;
  const bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  end_ = IdleExecEnded{ok, WIFEXITED(status) ? text("exit code ", WEXITSTATUS(status))
                                             : text("signal ", WTERMSIG(status))};
  return true;
}

}  // namespace skerry::daemon
