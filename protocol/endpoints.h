// SPDX-License-Identifier: Apache-2.0
// Addresses: the three of a coordinator, the one of a node, and the forms in
// which a person writes them.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry::protocol {

// A coordinator has the first three, a node the last one. Nodes and people use
// a node's endpoint as they use blob.
enum class Endpoint : std::uint8_t { kEnrol, kControl, kBlob, kPeer };
inline constexpr std::size_t kEndpointCount = 3;
inline constexpr std::array kAllEndpoints = {Endpoint::kEnrol, Endpoint::kControl, Endpoint::kBlob};
const char* to_string(Endpoint endpoint);  // "enrol", "control", "blob", "peer"

// RETURNS: the largest message that the endpoint carries, in either direction.
std::size_t limit_bytes(Endpoint endpoint);

inline constexpr std::uint16_t kDefaultPort = 7600;

// The addresses that others dial, each "tcp://HOST:PORT".
struct Endpoints {
  std::string enrol;
  std::string control;
  std::string blob;
  std::string peer = {};  // a node's only one; empty: it cannot be dialled
  bool operator==(const Endpoints&) const = default;
  const std::string& of(Endpoint endpoint) const;
  std::string& of(Endpoint endpoint);
};

// HOST:PORT, HOST:P1,P2,P3, or HOST alone (default port). An IPv6 host stands
// in brackets. After one port, control and blob take the next two; with port 0
// the system picks all three.
struct Address {
  std::string host;
  std::array<std::uint16_t, kEndpointCount> ports{};
  bool has_ports = false;  // the text named them
};
Result<Address> parse_address(std::string_view text);

// HOST:PORT of a node; with port 0 the system picks one.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
Result<HostPort> parse_host_port(std::string_view text);

// "tcp://HOST:PORT".
std::string tcp_url(const std::string& host, std::uint16_t port);
// Fails unless the text is a tcp://HOST:PORT that can be dialled: a port other
// than 0, a host of letters, digits and .-_:%
Result<void> check_url(std::string_view url);

}  // namespace skerry::protocol
