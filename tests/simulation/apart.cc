// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "base/check.h"

namespace skerry::simulation {
namespace {

// A run that goes round and round within one moment of the virtual clock never
// ends by itself.
constexpr unsigned kHangSeconds = 300;

struct Child {
  std::size_t job = 0;
  pid_t process = 0;
  int pipe = -1;
  std::string said;
};

Child start(std::size_t job, const std::function<void(std::size_t, const Mouth&)>& work) {
  int ends[2];
  SKERRY_CHECK(::pipe(ends) == 0, "no pipe");
  std::cout.flush();
  std::fflush(stdout);
  const pid_t process = ::fork();
  SKERRY_CHECK(process >= 0, "no process");
  if (process > 0) {
    ::close(ends[1]);
    return {job, process, ends[0], {}};
  }
  ::close(ends[0]);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  ::alarm(kHangSeconds);
  work(job, Mouth(ends[1]));
  ::_exit(0);
}

// False once it has said everything.
bool read_some(Child& child) {
  char buffer[1 << 16];
  const ssize_t got = ::read(child.pipe, buffer, sizeof buffer);
  if (got > 0) child.said.append(buffer, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

Ended finish(const Child& child) {
  ::close(child.pipe);
  int status = 0;
  ::waitpid(child.process, &status, 0);
  Ended ended;
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  std::istringstream lines(child.said);
  for (std::string line; std::getline(lines, line);) ended.lines.push_back(line);
  return ended;
}

}  // namespace

void Mouth::say(const std::string& line) const {
  ::alarm(kHangSeconds);  // from here on: a hunt goes through many seeds
  const std::string whole = line + "\n";
  for (std::size_t said = 0; said < whole.size();) {
    const ssize_t taken = ::write(pipe_, whole.data() + said, whole.size() - said);
    SKERRY_CHECK(taken > 0, "the pipe is gone");
    said += static_cast<std::size_t>(taken);
  }
}

void run_apart(std::size_t jobs, unsigned processes,
               const std::function<void(std::size_t, const Mouth&)>& work,
               const std::function<void(std::size_t, const Ended&)>& ended) {
  std::vector<Child> running;
  for (std::size_t next = 0; next < jobs || !running.empty();) {
    while (next < jobs && running.size() < processes) running.push_back(start(next++, work));
    std::vector<pollfd> waits;
    for (const Child& child : running) waits.push_back({child.pipe, POLLIN, 0});
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    for (std::size_t i = waits.size(); i-- > 0;) {
      if (waits[i].revents == 0 || read_some(running[i])) continue;
      const Child child = std::move(running[i]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      ended(child.job, finish(child));
    }
  }
}

}  // namespace skerry::simulation
