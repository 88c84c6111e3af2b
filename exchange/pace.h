// SPDX-License-Identifier: Apache-2.0
// How much may go, and how fast it goes: a limit in bytes a second, and what is
// known of a connection's speed. Values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace skerry::exchange {

// A token bucket, kept as the moment at which what was taken is paid for. Over
// any time T no more than rate * (T + kBurst) bytes and one message are taken.
class TokenBucket {
 public:
  explicit TokenBucket(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  bool is_open(Now now) const { return now.boot >= opens_at_; }
  Duration opens_at() const { return opens_at_; }
  void take(std::size_t bytes, Now now);
  void give_back(std::size_t bytes);

 private:
  Duration cost(std::size_t bytes) const;
  std::uint64_t bytes_per_second_;  // 0: no limit
  Duration opens_at_ = Duration::min();
};

// Estimates a peer's speed from its replies. Throughput: the bytes that arrive
// between a request and its reply, as BBR measures. Latency: the shortest
// reply.
class Speed {
 public:
  struct Mark {
    Duration at{};
    std::uint64_t received = 0;
  };
  Mark mark(Now now) const { return {now.boot, received_}; }  // at a request
  void received(const Mark& mark, std::size_t bytes, Now now);

  double bytes_per_second() const { return rate_; }  // 0: not known
  Duration expected(std::size_t bytes) const;        // for a request with none before it
  // Bytes to keep asked for: twice what is on the way when the connection is
  // full.
  std::size_t window() const;

 private:
  std::uint64_t received_ = 0;
  double rate_ = 0;
  Duration round_trip_{};
};

}  // namespace skerry::exchange
