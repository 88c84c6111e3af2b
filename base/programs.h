// SPDX-License-Identifier: Apache-2.0
// Runs other programs: finds them, runs them and reads their output, or
// replaces this process by one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace skerry {

// RETURNS: the program's path, beside this program or else in the folders of
// `path`, separated by colons.
// ON FAILURE: kNotFound.
Result<std::string> find_executable(const std::string& name, const std::string& path);

// The limits of a child and its environment.
struct RunOptions {
  // "NAME=VALUE" each; overrides this process's environment
  std::vector<std::string> environment{};
  std::optional<Duration> limit{};  // none: as long as it takes
  // once this descriptor is readable, the child is killed
  int stop = -1;
};

using OnLine = std::function<void(const std::string& line)>;

// Runs the program to its end; its standard input is ours.
// RETURNS: its exit status, or 128 + the number of the signal that ended it.
// ON FAILURE: kTimeout past the limit, kUnavailable after `stop`. The child is
// then killed but not waited for: one in uninterruptible sleep would block its
// parent too.
Result<int> run_and_read(const std::vector<std::string>& words, const OnLine& on_line,
                         const RunOptions& options = {});

// Does the same for a child that was already forked; `output` is the read end
// of its output.
Result<int> read_and_wait(pid_t child, int output, const std::string& name, const OnLine& on_line,
                          const RunOptions& options);

// RETURNS: the status of a child that ends within `limit`, in waitpid's form.
// nullopt: it has not ended.
std::optional<int> wait_for_end(pid_t child, Duration limit);

// RETURNS: this process's environment, with `changes` ("NAME=VALUE" each)
// applied.
std::vector<std::string> environment_with(const std::vector<std::string>& changes);

// RETURNS: the words in exec's form, a null pointer last. LIFETIME: the
// pointers live as long as `words`.
std::vector<char*> as_arguments(const std::vector<std::string>& words);

// Returns only on failure.
Result<int> replace_process(const std::vector<std::string>& words);

}  // namespace skerry
