// SPDX-License-Identifier: Apache-2.0
// Finds the connection that a closed descriptor belonged to. ZeroMQ's monitor
// names descriptors; its messages name descriptors and connections. The two
// streams race, and the system reuses descriptors. The rules are here, without
// any I/O.
//
// REQUIRES: the caller passes every monitor event that happened before a
// message was received ahead of that message.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace skerry::protocol {

struct Peer {
  std::string connection;  // ROUTER's id: 5 bytes, a counter of connections
  std::string public_key;
  int descriptor = -1;
};

class PeerTable {
 public:
  // RETURNS: the connections that are now known to have ended, each at most
  // once.
  std::vector<Peer> accepted(int descriptor);
  std::vector<Peer> disconnected(int descriptor);
  // Reports a message. The result includes the peer itself if its connection
  // ended before the message was read.
  std::vector<Peer> message(const Peer& peer);

  // Removes a connection that this side ended.
  std::optional<Peer> forget(const std::string& connection);
  // RETURNS: whether it has ended. Its last messages, still in the queue, must
  // not be delivered.
  bool is_over(const std::string& connection) const { return over_.contains(connection); }
  const Peer* find(const std::string& connection) const;
  std::vector<Peer> peers() const;

 private:
  std::vector<Peer> end(const std::string& connection);
  void remember_over(const std::string& connection);

  std::unordered_map<std::string, Peer> peers_;
  std::unordered_map<int, std::string> by_descriptor_;
  std::unordered_set<int> closed_;  // descriptors closed and not accepted again since
  std::unordered_set<std::string> over_;
  std::deque<std::string> over_order_;
};

}  // namespace skerry::protocol
