// Other programs: found, run with their output read, or taken the place by.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry {

// Beside this program, else in the folders of `path`, colons between them. kNotFound.
Result<std::string> find_executable(const std::string& name, const std::string& path);

// Waits for its end; returns its exit status, 128 + number where a signal ended it. Its standard input is ours.
Result<int> run_and_read(const std::vector<std::string>& words,
                         const std::function<void(const std::string& line)>& on_line);

// Returns only on failure.
Result<int> replace_process(const std::vector<std::string>& words);

}  // namespace skerry
