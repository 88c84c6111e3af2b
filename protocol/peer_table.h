// SPDX-License-Identifier: Apache-2.0
// Which connection a closed descriptor was. ZeroMQ's monitor names descriptors,
// its messages name descriptors and connections, the two streams race, and the
// system uses descriptors again: the rules stand here, without any I/O.
//
// REQUIRES: every monitor event that happened before a message was received is
// told before that message.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace skerry::protocol {

struct Peer {
  std::string connection;  // ROUTER's id: 5 bytes, counted up for each connection
  std::string public_key;
  int descriptor = -1;
};

class PeerTable {
 public:
  // Each returns the connections that are now known to be over, each at most
  // once.
  std::vector<Peer> accepted(int descriptor);
  std::vector<Peer> disconnected(int descriptor);
  // A message came. The peer itself is among those returned where its
  // connection ended before the message was read.
  std::vector<Peer> message(const Peer& peer);

  // A connection that is over by our own decision.
  std::optional<Peer> forget(const std::string& connection);
  // It has ended: its last messages, still in the queue, are not to be
  // delivered.
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
