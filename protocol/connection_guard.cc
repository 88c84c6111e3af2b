// SPDX-License-Identifier: Apache-2.0
#include "protocol/connection_guard.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string_view>
#include <utility>

namespace skerry::protocol {
namespace {

// A ping and a pong each second are 82 bytes.
constexpr std::uint64_t kHeartbeatBytesPerSecond = 128;

std::uint64_t heartbeat_bytes(Duration silence) {
  return kHeartbeatBytesPerSecond *
         static_cast<std::uint64_t>(silence / std::chrono::seconds(1) + 1);
}

// Close enough to zero: the guard counts the wire's bytes anew from there.
constexpr std::uint64_t kRestBytes = 64 << 10;

// A message of ZMTP 3 under CURVE: flags and length, then "\7MESSAGE", nonce,
// seal and flags around the payload.
std::uint64_t bytes_on_wire(std::uint64_t message) {
  const std::uint64_t sealed = message + 8 + 8 + 16 + 1;
  return sealed + (sealed > 255 ? 9 : 2);
}

std::uint64_t beyond(std::uint64_t all, std::uint64_t part) { return all > part ? all - part : 0; }

}  // namespace

std::uint64_t received_bytes(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

std::optional<Offender> ConnectionGuard::accepted(int descriptor, const std::string& address,
                                                  Duration now) {
  ended(descriptor, now);
  Connection& connection = connections_[descriptor];
  connection.stranger = strangers_.insert(strangers_.end(), descriptor);
  connection.address = address;
  connection.since = now;
  if (strangers_.size() <= limits_.strangers) return std::nullopt;
  const int oldest = strangers_.front();
  return name(oldest, connections_.at(oldest), "too many connections that had said nothing");
}

std::optional<Offender> ConnectionGuard::ended(int descriptor, Duration now) {
  const auto found = connections_.find(descriptor);
  if (found == connections_.end()) return std::nullopt;
  Connection& connection = found->second;
  std::optional<Offender> offender;
  if (connection.stranger != strangers_.end()) {
    if (limits_.silence > Duration::zero() && now - connection.since >= limits_.silence)
      offender =
          Offender{descriptor, "", connection.address, "its handshake was not finished in time"};
    strangers_.erase(connection.stranger);
  }
  connections_.erase(found);
  return offender;
}

void ConnectionGuard::heard(int descriptor, const std::string& public_key, std::uint64_t bytes) {
  const auto found = connections_.find(descriptor);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.was_heard = true;
  connection.delivered += bytes_on_wire(bytes);
  if (connection.stranger == strangers_.end()) return;
  connection.public_key = public_key;
  strangers_.erase(connection.stranger);
  connection.stranger = strangers_.end();
}

// Names a connection: it is about to end and counts no longer.
Offender ConnectionGuard::name(int descriptor, Connection& connection, const std::string& why) {
  connection.is_named = true;
  if (connection.stranger != strangers_.end()) strangers_.erase(connection.stranger);
  connection.stranger = strangers_.end();
  return {descriptor, connection.public_key, connection.address, why};
}

std::vector<Offender> ConnectionGuard::check(Duration now) {
  std::vector<Offender> found;
  check_strangers(now, found);
  check_members(now, found);
  return found;
}

void ConnectionGuard::check_strangers(Duration now, std::vector<Offender>& found) {
  std::uint64_t together = 0;
  for (auto next = strangers_.end();
       next != strangers_.begin();) {  // the newest first: the oldest makes room
    const int descriptor = *--next;
    Connection& connection = connections_.at(descriptor);
    const std::uint64_t bytes = count_(descriptor);
    together += bytes;
    const bool too_much =
        beyond(bytes, heartbeat_bytes(now - connection.since)) > limits_.stranger_bytes;
    if (!too_much && together <= limits_.strangers_bytes) continue;
    together -= bytes;
    ++next;  // which its name leaves valid
    found.push_back(name(descriptor, connection, "sent too much before it was known"));
  }
}

void ConnectionGuard::check_members(Duration now, std::vector<Offender>& found) {
  struct Together {
    std::uint64_t unread = 0;
    std::size_t connections = 0;
  };
  std::unordered_map<std::string_view, Together> of_key;
  for (auto& [descriptor, connection] : connections_) {
    if (connection.is_named || connection.stranger != strangers_.end()) continue;
    const std::uint64_t received = count_(descriptor);
    const std::uint64_t held =
        beyond(received, connection.delivered + heartbeat_bytes(now - connection.since));
    const bool was_heard = std::exchange(connection.was_heard, false);
    if (was_heard) connection.heard_at = now;
    const bool is_quits = was_heard && held <= kRestBytes;
    if (is_quits) {
      connection.delivered = received;
      connection.since = now;
    }
    Together& together = of_key[connection.public_key];
    together.unread += is_quits ? 0 : held;
    if (together.unread > limits_.member_bytes) {
      found.push_back(name(descriptor, connection, "sent a message that does not end"));
    } else if (++together.connections > limits_.member_connections) {
      found.push_back(name(descriptor, connection, "too many connections of one key"));
    } else if (now - connection.heard_at >= limits_.member_silence) {
      found.push_back(name(descriptor, connection, ""));
    }
  }
}

}  // namespace skerry::protocol
