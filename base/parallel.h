// SPDX-License-Identifier: Apache-2.0
// Runs one loop on many processors, for work on bytes: hashing, reading.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace skerry {

// Calls work(0) … work(count − 1), each once, in no order, on this thread and
// others. It uses two threads a processor, four at most, so that one computes
// while another waits for the disk. It uses fewer if the system has no thread
// left. Returns when all calls have ended.
// ON FAILURE: no further call begins, and the failure is returned.
// THREADS: `work` runs on any thread, many at once.
Result<void> in_parallel(std::size_t count, const std::function<Result<void>(std::size_t)>& work);

}  // namespace skerry
