// SPDX-License-Identifier: Apache-2.0
// The rate limit of requests of one key on control: a burst, then so many a
// second. Requests beyond it are dropped unread, as if they were lost. A key
// that floods the coordinator costs the others a bounded share of its time.
//
// THREADS: one, the host's.
#pragma once

#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace skerry::coordinator {

// A daemon says a few things a second; people who run many commands at once say
// some dozens.
inline constexpr Duration kRequestInterval = std::chrono::milliseconds(5);
inline constexpr int kRequestsAtOnce = 400;

class RequestRate {
 public:
  enum class Verdict { kHeard, kFirstDropped, kDropped };  // the first one since it was heard
  Verdict ask(const std::string& key, Duration now);
  // Forgets the keys that might ask their most again. Memory is one entry for
  // each key between two calls.
  void forget(Duration now);
  std::size_t size() const { return keys_.size(); }

 private:
  struct Key {
    Duration paid_until{};
    bool was_dropped = false;
  };
  std::unordered_map<std::string, Key> keys_;
};

}  // namespace skerry::coordinator
