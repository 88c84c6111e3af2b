// SPDX-License-Identifier: Apache-2.0
// A card's stream, for tests: queued work runs in order, in a thread of its
// own, as late as a card may run it. A program that does not wait sees old
// bytes.
//
// THREADS: any. Its thread lives as long as the process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace skerry::diffusion::testing {

class LateStream {
 public:
  // Both run in the stream's thread; either may be empty.
  struct Work {
    // What later work on the card sees: runs once such work needs it.
    std::function<void()> on_card;
    // What the host sees: runs once the host waits.
    std::function<void()> on_host;
  };

  LateStream();
  LateStream(const LateStream&) = delete;
  LateStream& operator=(const LateStream&) = delete;

  // RETURNS: its number, which counts on from 1.
  std::uint64_t queue(Work work);
  // RETURNS: the number of the last work; 0: none yet.
  std::uint64_t queued() const;
  // Waits until this work, and all before it, ran on the card.
  void run_on_card(std::uint64_t number);
  // Waits until the host sees it too.
  void finish(std::uint64_t number);
  // RETURNS: whether the host sees this work. Asking lets it run, so that a
  // program that asks again ends.
  bool is_finished(std::uint64_t number);

 private:
  struct Side {
    std::uint64_t allowed = 0, done = 0;
    std::deque<std::function<void()>> work;
  };
  [[noreturn]] void run();
  void allow(Side& side, std::uint64_t number);
  void wait(std::unique_lock<std::mutex>& lock, const Side& side, std::uint64_t number);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Side card_, host_;
  std::uint64_t queued_ = 0;
};

}  // namespace skerry::diffusion::testing
