// SPDX-License-Identifier: Apache-2.0
// The threads of one training, one for each card. LibTorch's current device,
// stream and settings belong to a thread, so each rank keeps its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace skerry::diffusion {

class Ranks {
 public:
  explicit Ranks(std::size_t count);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  std::size_t count() const { return thrown_.size(); }
  // Calls part(0) … part(count − 1), each on the thread of its rank; rank 0 is
  // the caller. Returns when all have ended.
  // ON FAILURE: throws what the lowest of the ranks that failed threw.
  // THREADS: one at a time, always the same one.
  void run(const std::function<void(std::size_t)>& part);

 private:
  void loop(std::size_t rank);

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(std::size_t)>* part_ = nullptr;
  std::uint64_t runs_ = 0;   // so many have begun
  std::size_t running_ = 0;  // ranks of the last one, but rank 0
  bool stopping_ = false;
  std::vector<std::exception_ptr> thrown_;  // by rank, in the last run
  std::vector<std::thread> threads_;        // of the ranks from 1 on
};

}  // namespace skerry::diffusion
