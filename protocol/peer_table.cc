// SPDX-License-Identifier: Apache-2.0
#include "protocol/peer_table.h"

#include <cstdint>

namespace skerry::protocol {
namespace {

constexpr std::size_t kRemembered =
    16'384;  // more than the messages that can wait behind a connection's end

std::uint32_t number_of(const std::string& connection) {
  std::uint32_t number = 0;
  for (std::size_t i = 1; i < connection.size(); ++i)
    number = number << 8 | static_cast<unsigned char>(connection[i]);
  return number;
}

// Connections are counted up, and the count may wrap.
bool newer(const std::string& a, const std::string& b) {
  return static_cast<std::int32_t>(number_of(a) - number_of(b)) > 0;
}

}  // namespace

std::vector<Peer> PeerTable::accepted(int descriptor) {
  closed_.erase(descriptor);
  const auto found = by_descriptor_.find(descriptor);
  return found == by_descriptor_.end() ? std::vector<Peer>() : end(std::string(found->second));
}

std::vector<Peer> PeerTable::disconnected(int descriptor) {
  closed_.insert(descriptor);
  const auto found = by_descriptor_.find(descriptor);
  return found == by_descriptor_.end() ? std::vector<Peer>() : end(std::string(found->second));
}

std::vector<Peer> PeerTable::message(const Peer& peer) {
  if (peers_.contains(peer.connection) || is_over(peer.connection)) return {};
  const auto holder = by_descriptor_.find(peer.descriptor);
  const bool outlived = holder != by_descriptor_.end() && newer(holder->second, peer.connection);
  if (closed_.contains(peer.descriptor) || outlived) {
    remember_over(peer.connection);
    return {peer};
  }
  std::vector<Peer> over;
  if (holder != by_descriptor_.end()) over = end(std::string(holder->second));
  peers_[peer.connection] = peer;
  if (peer.descriptor >= 0) by_descriptor_[peer.descriptor] = peer.connection;
  return over;
}

std::optional<Peer> PeerTable::forget(const std::string& connection) {
  auto over = end(connection);
  if (over.empty()) return std::nullopt;
  return std::move(over.front());
}

const Peer* PeerTable::find(const std::string& connection) const {
  const auto found = peers_.find(connection);
  return found == peers_.end() ? nullptr : &found->second;
}

std::vector<Peer> PeerTable::peers() const {
  std::vector<Peer> all;
  all.reserve(peers_.size());
  for (const auto& [connection, peer] : peers_) all.push_back(peer);
  return all;
}

std::vector<Peer> PeerTable::end(const std::string& connection) {
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return {};
  Peer peer = std::move(found->second);
  peers_.erase(found);
  const auto holder = by_descriptor_.find(peer.descriptor);
  if (holder != by_descriptor_.end() && holder->second == connection) by_descriptor_.erase(holder);
  remember_over(connection);
  return {std::move(peer)};
}

void PeerTable::remember_over(const std::string& connection) {
  if (!over_.insert(connection).second) return;
  over_order_.push_back(connection);
  if (over_order_.size() <= kRemembered) return;
  over_.erase(over_order_.front());
  over_order_.pop_front();
}

}  // namespace skerry::protocol
