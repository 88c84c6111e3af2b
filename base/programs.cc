// SPDX-License-Identifier: Apache-2.0
#include "base/programs.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "base/system_error.h"
#include "base/text.h"
#include "base/unique_fd.h"

extern char** environ;

namespace skerry {
namespace {

bool is_executable(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

// Starts the program with its standard output on `out`.
Result<pid_t> start(const std::vector<std::string>& words, int out,
                    const std::vector<std::string>& environment) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  // We ignore SIGPIPE and handle SIGINT; the program must not inherit the
  // first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, words.front().c_str(), &actions, &attributes,
                                  as_arguments(words).data(), as_arguments(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return system_error("run", words.front(), error);
  return child;
}

constexpr Duration kEndLook =
    std::chrono::milliseconds(5);  // between two looks at whether a child has ended

// When to stop waiting for a child, and why.
class Deadline {
 public:
  explicit Deadline(const RunOptions& options) : options_(options), begun_(clock_.now().boot) {}

  Duration left() const {
    return options_.limit ? std::max(Duration{}, begun_ + *options_.limit - clock_.now().boot)
                          : Duration::max();
  }
  // Until `descriptor` (−1: none) can be read or `longest` is over.
  // ON FAILURE: the child is not waited for any longer.
  Result<void> wait(int descriptor, Duration longest, const std::string& name) const {
    std::array<pollfd, 2> waited{{{descriptor, POLLIN, 0}, {options_.stop, POLLIN, 0}}};
    const Duration time = std::min(longest, left());
    const timespec limit{time / std::chrono::seconds(1), (time % std::chrono::seconds(1)).count()};
    if (::ppoll(waited.data(), waited.size(), time == Duration::max() ? nullptr : &limit, nullptr) <
            0 &&
        errno != EINTR) {
      return system_error("wait for", name, errno);
    }
    if (waited[1].revents != 0) return fail(ErrorCode::kUnavailable, text(name, ": told to stop"));
    if (left() > Duration{}) return {};
    return fail(ErrorCode::kTimeout, text(name, " did not answer within ",
                                          *options_.limit / std::chrono::seconds(1), " s"));
  }

 private:
  SystemClock clock_;
  const RunOptions& options_;
  Duration begun_;
};

Result<void> read_lines(int descriptor, const OnLine& on_line, const Deadline& deadline,
                        const std::string& name) {
  // A wait that a signal ends says that it can be read, and a read that waits
  // would hear of no deadline.
  if (::fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0) return system_error("read from", name, errno);
  std::string pending;
  char block[4096];
  while (true) {
    TRY(deadline.wait(descriptor, Duration::max(), name));
    const ssize_t got = ::read(descriptor, block, sizeof block);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) break;
    pending.append(block, static_cast<std::size_t>(got));
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      on_line(pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  if (!pending.empty()) on_line(pending);
  return {};
}

// Its output may have ended long before it does: a driver can hold a process
// that is leaving.
Result<int> wait_status(pid_t child, const Deadline& deadline, const std::string& name) {
  int status = 0;
  for (pid_t ended; (ended = ::waitpid(child, &status, WNOHANG)) != child;) {
    if (ended < 0 && errno != EINTR) return system_error("wait for", name, errno);
    TRY(deadline.wait(-1, kEndLook, name));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<std::string> find_executable(const std::string& name, const std::string& path) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = (self.parent_path() / name).string();
  if (!error && is_executable(beside)) return beside;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(candidate)) return candidate;
  }
  return fail(ErrorCode::kNotFound, text(name, " is neither beside this program nor in PATH"));
}

std::vector<char*> as_arguments(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry(*at);
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    const auto changed = [&](const std::string& change) { return change.starts_with(name); };
    if (std::none_of(changes.begin(), changes.end(), changed)) all.emplace_back(entry);
  }
  return all;
}

std::optional<int> wait_for_end(pid_t child, Duration limit) {
  const RunOptions options{.limit = limit};
  const Deadline deadline(options);
  int status = 0;
  for (pid_t ended; (ended = ::waitpid(child, &status, WNOHANG)) != child;) {
    // other code has waited for it already
    if (ended < 0 && errno != EINTR) return 0;
    if (!deadline.wait(-1, kEndLook, "a child")) return std::nullopt;
  }
  return status;
}

Result<int> read_and_wait(pid_t child, int output, const std::string& name, const OnLine& on_line,
                          const RunOptions& options) {
  const Deadline deadline(options);
  Result<void> read = read_lines(output, on_line, deadline, name);
  Result<int> status = read ? wait_status(child, deadline, name) : Result<int>(read.error());
  if (!status) ::kill(child, SIGKILL);
  return status;
}

Result<int> run_and_read(const std::vector<std::string>& words, const OnLine& on_line,
                         const RunOptions& options) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("make a pipe for", words.front(), errno);
  const UniqueFd output(ends[0]);
  UniqueFd child_output(ends[1]);
  ASSIGN_OR_RETURN(const pid_t child,
                   start(words, child_output.get(), environment_with(options.environment)));
  child_output.reset();
  return read_and_wait(child, output.get(), words.front(), on_line, options);
}

Result<int> replace_process(const std::vector<std::string>& words) {
  std::signal(SIGPIPE, SIG_DFL);
  ::execv(words.front().c_str(), as_arguments(words).data());
  return system_error("run", words.front(), errno);
}

}  // namespace skerry
