// SPDX-License-Identifier: Apache-2.0
// Bounds the memory that unfinished messages of a port's connections can take.
// ZeroMQ bounds a frame, but not the number of frames in a message that never
// ends. The guard compares the bytes that the kernel received on a connection
// with the bytes delivered as whole messages. It returns the connections to end
// and ends none itself. It names a connection once.
//
// - A stranger has delivered no message yet. Three limits bound strangers:
//   their number, the bytes of each, the bytes of all. The oldest makes room.
// - A member has delivered one. A limit bounds the undelivered bytes of all
//   connections of one key. The guard names the connection that exceeds it.
//
// ZeroMQ's heartbeats arrive as bytes but are no messages, so each second
// allows some bytes for them. A message that grows no faster than heartbeats
// looks the same. So a key has a limit of connections, and the guard ends one
// that delivered no message for long.
//
// THREADS: the server's.
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
  Duration member_silence{};  // the guard ends a member after so long without a whole message
  // a stranger that ends after so long failed to finish its handshake
  Duration silence{};
};

struct Offender {
  int descriptor = -1;
  std::string public_key;  // empty: a stranger
  std::string address;
  std::string why;  // empty: no fault of its own, it may dial again
};

// Counts the bytes that the kernel has received on a connection since it began.
// A test passes its own.
using CountBytes = std::function<std::uint64_t(int descriptor)>;
std::uint64_t received_bytes(int descriptor);  // 0 if it is no TCP connection any more

class ConnectionGuard {
 public:
  explicit ConnectionGuard(const GuardLimits& limits, CountBytes count = received_bytes)
      : limits_(limits), count_(std::move(count)) {}

  // RETURNS: the oldest stranger if there are too many.
  std::optional<Offender> accepted(int descriptor, const std::string& address, Duration now);
  // RETURNS: the connection, if it stayed a stranger for as long as a handshake
  // may take.
  std::optional<Offender> ended(int descriptor, Duration now);
  // Reports a whole delivered message: its sender is a stranger no longer.
  void heard(int descriptor, const std::string& public_key, std::uint64_t bytes);

  // Asks the kernel about every connection. Call it a few times a second.
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
