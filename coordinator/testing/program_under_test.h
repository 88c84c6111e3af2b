// SPDX-License-Identifier: Apache-2.0
// The real program as a child of a test: its output line by line, its signals,
// its exit code.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "base/unique_fd.h"

namespace skerry::coordinator::testing {

class ProgramUnderTest {
 public:
  explicit ProgramUnderTest(std::vector<std::string> words) {
    int ends[2];
    SKERRY_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "a pipe");
    output_ = UniqueFd(ends[0]);
    const UniqueFd input(ends[1]);
    words.insert(words.begin(), COORDINATOR_PROGRAM);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    child_ = ::fork();
    SKERRY_CHECK(child_ >= 0, "a child");
    if (child_ == 0) {
      ::dup2(input.get(), STDOUT_FILENO);
      ::dup2(input.get(), STDERR_FILENO);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
  }
  ~ProgramUnderTest() {
    if (child_ > 0) kill_it();
  }
  ProgramUnderTest(const ProgramUnderTest&) = delete;
  ProgramUnderTest& operator=(const ProgramUnderTest&) = delete;

  // Reads until the text was said; false where the program ended before.
  bool says(const std::string& expected) {
    while (said_.find(expected) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }
  const std::string& said() const { return said_; }

  void kill_it() {
    ::kill(child_, SIGKILL);
    wait();
  }
  int terminate() {
    ::kill(child_, SIGTERM);
    return wait();
  }
  // Its exit code, once it has ended by itself; -1 for a signal.
  int wait() {
    while (read_more()) {
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  bool read_more() {
    char buffer[4096];
    const ssize_t bytes = ::read(output_.get(), buffer, sizeof(buffer));
    if (bytes <= 0) return false;
    said_.append(buffer, static_cast<std::size_t>(bytes));
    return true;
  }
  UniqueFd output_;
  pid_t child_ = -1;
  std::string said_;
};

}  // namespace skerry::coordinator::testing
