// SPDX-License-Identifier: Apache-2.0
// Other programs: found, run with their output read, or taken the place by.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace skerry {

// Beside this program, else in the folders of `path`, colons between them.
// kNotFound.
Result<std::string> find_executable(const std::string& name, const std::string& path);

// What bounds a child and what it inherits.
struct RunOptions {
  std::vector<std::string> environment{};  // "NAME=VALUE" each: over what this process has
  std::optional<Duration> limit{};         // none: as long as it takes
  int stop = -1;  // once this descriptor can be read, the child is not wanted any more
};

using OnLine = std::function<void(const std::string& line)>;

// Waits for its end; returns its exit status, 128 + number where a signal ended
// it. Its standard input is ours.
// ON FAILURE: kTimeout past the limit, kUnavailable after `stop`. The child is
// killed then and not waited for: one in uninterruptible sleep would hold its
// parent too.
Result<int> run_and_read(const std::vector<std::string>& words, const OnLine& on_line,
                         const RunOptions& options = {});

// The rest of the same for a child that was forked with `output` as the other
// end of what it writes.
Result<int> read_and_wait(pid_t child, int output, const std::string& name, const OnLine& on_line,
                          const RunOptions& options);

// RETURNS: the status of a child that ends within `limit`, as waitpid has it.
// nullopt: it has not ended.
std::optional<int> wait_for_end(pid_t child, Duration limit);

// This process's environment with `changes` ("NAME=VALUE" each) over it.
std::vector<std::string> environment_with(const std::vector<std::string>& changes);

// As exec takes words: the pointers live as long as `words`, a null pointer
// comes last.
std::vector<char*> as_arguments(const std::vector<std::string>& words);

// Returns only on failure.
Result<int> replace_process(const std::vector<std::string>& words);

}  // namespace skerry
