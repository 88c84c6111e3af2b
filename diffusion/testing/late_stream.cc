// SPDX-License-Identifier: Apache-2.0
#include "diffusion/testing/late_stream.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace skerry::diffusion::testing {

LateStream::LateStream() {
  std::thread([this] { run(); }).detach();
}

std::uint64_t LateStream::queue(Work work) {
  const std::scoped_lock lock(mutex_);
  card_.work.push_back(std::move(work.on_card));
  host_.work.push_back(std::move(work.on_host));
  return ++queued_;
}

std::uint64_t LateStream::queued() const {
  const std::scoped_lock lock(mutex_);
  return queued_;
}

void LateStream::run_on_card(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  allow(card_, number);
  wait(lock, card_, number);
}

void LateStream::finish(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  allow(card_, number);
  allow(host_, number);
  wait(lock, host_, number);
}

bool LateStream::is_finished(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  const bool finished = host_.done >= number;
  allow(card_, number);
  allow(host_, number);
  return finished;
}

void LateStream::allow(Side& side, std::uint64_t number) {
  side.allowed = std::max(side.allowed, number);
  changed_.notify_all();
}

void LateStream::wait(std::unique_lock<std::mutex>& lock, const Side& side, std::uint64_t number) {
  changed_.wait(lock, [&] { return side.done >= number; });
}

// The host sees what ran on the card, and no sooner.
void LateStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool card_may = card_.done < std::min(card_.allowed, queued_);
    const bool host_may = host_.done < std::min(host_.allowed, card_.done);
    if (!card_may && !host_may) {
      changed_.wait(lock);
      continue;
    }
    Side& side = card_may ? card_ : host_;
    {
      const std::function<void()> work = std::move(side.work.front());
      side.work.pop_front();
      lock.unlock();
      if (work) work();
    }
    lock.lock();
    ++side.done;
    changed_.notify_all();
  }
}

}  // namespace skerry::diffusion::testing
