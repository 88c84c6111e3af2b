#include "base/programs.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "base/system_error.h"
#include "base/text.h"

extern char** environ;

namespace skerry {
namespace {

bool is_executable(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<char*> as_arguments(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

// Starts the program with its standard output on `out`.
Result<pid_t> start(const std::vector<std::string>& words, int out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  // We ignore SIGPIPE and handle SIGINT; the program must not inherit the first.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, words.front().c_str(), &actions, &attributes,
                                  as_arguments(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return system_error("run", words.front(), error);
  return child;
}

void read_lines(int descriptor, const std::function<void(const std::string&)>& on_line) {
  std::string pending;
  char block[4096];
  while (true) {
    const ssize_t got = ::read(descriptor, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    pending.append(block, static_cast<std::size_t>(got));
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      on_line(pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  if (!pending.empty()) on_line(pending);
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

Result<int> run_and_read(const std::vector<std::string>& words,
                         const std::function<void(const std::string& line)>& on_line) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("make a pipe for", words.front(), errno);
  const Result<pid_t> child = start(words, ends[1]);
  ::close(ends[1]);
  if (!child.has_value()) {
    ::close(ends[0]);
    return child.error();
  }
  read_lines(ends[0], on_line);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(*child, &status, 0) < 0) {
    if (errno != EINTR) return system_error("wait for", words.front(), errno);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<int> replace_process(const std::vector<std::string>& words) {
  std::signal(SIGPIPE, SIG_DFL);
  ::execv(words.front().c_str(), as_arguments(words).data());
  return system_error("run", words.front(), errno);
}

}  // namespace skerry
