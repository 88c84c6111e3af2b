// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/ranks.h"

#include <algorithm>

namespace skerry::diffusion {

Ranks::Ranks(std::size_t count) : thrown_(std::max<std::size_t>(1, count)) {
  for (std::size_t rank = 1; rank < thrown_.size(); ++rank)
    threads_.emplace_back([this, rank] { loop(rank); });
}

Ranks::~Ranks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Ranks::run(const std::function<void(std::size_t)>& part) {
  const auto attempt = [&](std::size_t rank) {
    try {
      part(rank);
    } catch (...) {
      thrown_[rank] = std::current_exception();
    }
  };
  std::ranges::fill(thrown_, nullptr);
  const std::function<void(std::size_t)> guarded = attempt;
  {
    const std::lock_guard lock(mutex_);
    part_ = &guarded;
    ++runs_;
    running_ = threads_.size();
  }
  begun_.notify_all();
  attempt(0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return running_ == 0; });
  for (const std::exception_ptr& thrown : thrown_) {
    if (thrown) std::rethrow_exception(thrown);
  }
}

void Ranks::loop(std::size_t rank) {
  for (std::uint64_t seen = 0;;) {
    const std::function<void(std::size_t)>* part = nullptr;
    {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [&] { return stopping_ || runs_ > seen; });
      if (stopping_) return;
      seen = runs_;
      part = part_;
    }
    (*part)(rank);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_one();
  }
}

}  // namespace skerry::diffusion
