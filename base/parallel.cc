// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace skerry {
namespace {

constexpr std::size_t kMaxThreads = 4;

}  // namespace

Result<void> in_parallel(std::size_t count, const std::function<Result<void>(std::size_t)>& work) {
  if (count == 1) return work(0);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  Result<void> outcome;
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      Result<void> done = work(i);
      if (done) continue;
      next = count;
      const std::lock_guard lock(mutex);
      if (outcome) outcome = std::move(done);
    }
  };
  const std::size_t threads = std::min(
      {count, kMaxThreads, 2 * std::size_t{std::max(1U, std::thread::hardware_concurrency())}});
  {
    std::vector<std::jthread> others;
    try {
      for (std::size_t i = 1; i < threads; ++i) others.emplace_back(take);
    } catch (const std::
                 system_error&) {  // the system has no thread left: those that there are do it all
    }
    take();
  }
  return outcome;
}

}  // namespace skerry
