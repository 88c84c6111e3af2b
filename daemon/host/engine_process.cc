// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/engine_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/clean_text.h"
#include "base/programs.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/validate_engine.h"
#include "storage/files.h"

namespace skerry::daemon {
namespace {

constexpr int kExecFailed = 127;

// Runs in the child between fork and exec, where only async-signal-safe calls
// are allowed.
[[noreturn]] void become_engine(char* const* arguments, char* const* environment, int channel,
                                int output, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExecFailed);  // it died before the line above
  ::setpgid(0, 0);  // a Ctrl-C at the terminal is the daemon's to handle
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGUSR1, SIG_IGN);  // a job manager's notice reaches every process of the job
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(channel, F_SETFD, 0);
  // If the machine runs out of memory, the engine is what may die.
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0 && ::write(score, "500", 3) < 0) {
  }
  ::execve(arguments[0], arguments, environment);
  const char* reason = std::strerror(errno);
  if (::write(STDERR_FILENO, reason, std::strlen(reason)) < 0) {
  }
  ::_exit(kExecFailed);
}

}  // namespace

Result<EngineProcess> EngineProcess::spawn(const std::vector<std::string>& command,
                                           const std::string& card) {
  ASSIGN_OR_RETURN(auto pair, protocol::Channel::make_pair());
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
    return system_error("make a pipe for", command[0], errno);
  UniqueFd output(pipe[0]);
  UniqueFd child_output(pipe[1]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> words = command;
  words.emplace_back("--channel");
  words.push_back(std::to_string(pair.second.get()));
  const std::vector<std::string> settings = environment_with(
      card.empty() ? std::vector<std::string>{} : std::vector{text("CUDA_VISIBLE_DEVICES=", card)});
  const std::vector<char*> arguments = as_arguments(words), environment = as_arguments(settings);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return system_error("start", command[0], errno);
  if (child == 0)
    become_engine(arguments.data(), environment.data(), pair.second.get(), child_output.get(),
                  parent);
  return EngineProcess(child, protocol::Channel(std::move(pair.first)), std::move(output));
}

EngineProcess::EngineProcess(pid_t pid, protocol::Channel channel, UniqueFd output)
    : pid_(pid), channel_(std::move(channel)), output_(std::move(output)) {}

EngineProcess::EngineProcess(EngineProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      channel_(std::move(other.channel_)),
      output_(std::move(other.output_)),
      open_line_(std::move(other.open_line_)),
      last_lines_(std::move(other.last_lines_)),
      killed_here_(other.killed_here_),
      status_(other.status_) {}

EngineProcess::~EngineProcess() { end(kEngineEndLimit); }

bool EngineProcess::end(Duration limit) {
  if (is_gone()) return true;
  kill();
  const std::optional<int> status = wait_for_end(pid_, limit);
  reaped(status.value_or(0));
  return status.has_value();
}

std::vector<std::string> EngineProcess::read_output() {
  std::vector<std::string> lines;
  std::array<char, 16 << 10> buffer;
  // Bounded a call, so that an engine that prints without end cannot keep the
  // daemon from its heartbeats.
  for (int i = 0; output_ && i < 16; ++i) {
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      output_.reset();
      if (!open_line_.empty()) take_line(std::exchange(open_line_, {}), lines);
      break;
    }
    open_line_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = open_line_.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      take_line(open_line_.substr(begin, end - begin), lines);
    }
    open_line_.erase(0, begin);
    if (open_line_.size() > kOpenLineBytes) take_line(std::exchange(open_line_, {}), lines);
  }
  return lines;
}

void EngineProcess::take_line(std::string line, std::vector<std::string>& out) {
  std::string clean = clean_text(line, protocol::kLogLineBytes);
  last_lines_.push_back(clean);
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  out.push_back(std::move(clean));
}

void EngineProcess::kill() {
  if (is_gone()) return;
  killed_here_ = true;
  if (::kill(-pid_, SIGKILL) != 0)
    ::kill(pid_, SIGKILL);  // its group is made by the child itself, perhaps not yet
}

void EngineProcess::reaped(int status) {
  pid_ = -1;
  status_ = status;
}

std::string EngineProcess::how() const {
  if (WIFSIGNALED(status_))
    return text("signal ", WTERMSIG(status_), " (", ::strsignal(WTERMSIG(status_)), ")");
  return text("exit code ", WEXITSTATUS(status_));
}

bool EngineProcess::killed_for_memory() const {
  return !killed_here_ && WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL;
}

Result<std::string> find_engine(const std::string& wanted) {
  namespace fs = std::filesystem;
  const auto is_program = [](const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (!wanted.empty()) {
    if (is_program(wanted)) return fs::absolute(wanted).string();
    return fail(ErrorCode::kNotFound,
                text("the engine ", wanted, " is not a program that can be run"));
  }
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = own.parent_path() / "skerry-engine";
  if (!error && is_program(beside)) return beside.string();
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const fs::path candidate = fs::path(rest.substr(0, end)) / "skerry-engine";
    if (end > 0 && is_program(candidate)) return candidate.string();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return fail(ErrorCode::kNotFound,
              text("there is no skerry-engine in ", own.parent_path().string(),
                   " nor on PATH; name it with --engine or SKERRY_ENGINE"));
}

}  // namespace skerry::daemon
