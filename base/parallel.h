// SPDX-License-Identifier: Apache-2.0
// One loop over many processors, for work on bytes: hashing, reading.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace skerry {

// work(0) … work(count − 1), in no order, each once, on this thread and on
// others: two for each processor, four at most, so that one computes while
// another waits for the disk; fewer where the system has no thread left.
// Returns when all have ended. After a failure no further one begins, and it is
// returned. `work`: any thread, many at once.
Result<void> in_parallel(std::size_t count, const std::function<Result<void>(std::size_t)>& work);

}  // namespace skerry
