// SPDX-License-Identifier: Apache-2.0
// Bounds what a port's connections make the server hold before a message of
// theirs is whole. ZeroMQ bounds a frame, not the frames of a message that
// never ends: what the kernel has received on a connection is held against what
// was delivered. Belongs to the server's thread. It names whom to end and ends
// nobody; a connection is named once.
//
//   strangers  have had no message delivered. So many, so many bytes each, and so many together: the oldest makes room
//   members    have. What all connections of one key hold unread is bounded; the one that goes beyond it is named
//
// Heartbeats of ZeroMQ are no messages, but are received: they are allowed for
// by the second. A message that grows no faster than they would cannot be told
// from them: so a key has so many connections, and one that was long not heard
// is ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace skerry::protocol {

struct GuardLimits {
  std::size_t strangers = 0;
  std::uint64_t stranger_bytes = 0;
  std::uint64_t strangers_bytes = 0;   // of all together
  std::uint64_t member_bytes = 0;      // of one key's connections together
  std::size_t member_connections = 0;  // of one key
  Duration member_silence{};           // without a whole message for so long, a member is ended
  Duration silence{};  // a stranger that ends after so long had not finished its handshake
};

struct Offender {
  int descriptor = -1;
  std::string public_key;  // empty: a stranger
  std::string address;
  std::string why;  // empty: it is not to blame, and may dial again
};

// What the kernel has received on a connection since it began; a test has its
// own.
using CountBytes = std::function<std::uint64_t(int descriptor)>;
std::uint64_t received_bytes(int descriptor);  // 0 where it is no TCP connection any more

class ConnectionGuard {
 public:
  explicit ConnectionGuard(const GuardLimits& limits, CountBytes count = received_bytes)
      : limits_(limits), count_(std::move(count)) {}

  // Returns the oldest stranger where there are too many.
  std::optional<Offender> accepted(int descriptor, const std::string& address, Duration now);
  // Returns it where it never became more than a stranger in all the time that
  // it had.
  std::optional<Offender> ended(int descriptor, Duration now);
  // A whole message was delivered: its sender is no stranger any more.
  void heard(int descriptor, const std::string& public_key, std::uint64_t bytes);

  // To be called a few times a second. Asks the kernel about every connection.
  std::vector<Offender> check(Duration now);
  bool idle() const { return connections_.empty(); }

 private:
  struct Connection {
    std::list<int>::iterator stranger;  // its place in strangers_; the end: it is none
    std::string public_key;
    std::string address;
    std::uint64_t delivered = 0;  // of what was received
    Duration since{};             // when it was accepted, or `delivered` was set anew
    Duration heard_at{};          // as of a check
    bool was_heard = false;       // since the last check
    bool is_named = false;
  };
  void check_strangers(Duration now, std::vector<Offender>& found);
  void check_members(Duration now, std::vector<Offender>& found);
  Offender name(int descriptor, Connection& connection, const std::string& why);

  GuardLimits limits_;
  CountBytes count_;
  std::list<int> strangers_;  // oldest first
  std::unordered_map<int, Connection> connections_;
};

}  // namespace skerry::protocol
