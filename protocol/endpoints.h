// SPDX-License-Identifier: Apache-2.0
// The three addresses of a coordinator, the one of a node, and how a person
// writes them.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry::protocol {

// A coordinator has the first three, a node the last one: there, nodes and
// people talk as at blob.
enum class Endpoint : std::uint8_t { kEnrol, kControl, kBlob, kPeer };
inline constexpr std::size_t kEndpointCount = 3;
inline constexpr std::array kAllEndpoints = {Endpoint::kEnrol, Endpoint::kControl, Endpoint::kBlob};
const char* to_string(Endpoint endpoint);  // "enrol", "control", "blob", "peer"

// The largest message that the endpoint carries, either way.
std::size_t limit_bytes(Endpoint endpoint);

inline constexpr std::uint16_t kDefaultPort = 7600;

// What others dial: "tcp://HOST:PORT" each.
struct Endpoints {
  std::string enrol;
  std::string control;
  std::string blob;
  std::string peer = {};  // of a node, which has no other; empty: it cannot be dialled
  bool operator==(const Endpoints&) const = default;
  const std::string& of(Endpoint endpoint) const;
  std::string& of(Endpoint endpoint);
};

// HOST:PORT, HOST:P1,P2,P3, or HOST alone (default port); an IPv6 host stands
// in brackets. One port means the next two belong to control and blob; port 0
// means that the system picks all three.
struct Address {
  std::string host;
  std::array<std::uint16_t, kEndpointCount> ports{};
  bool has_ports = false;  // they were in the text
};
Result<Address> parse_address(std::string_view text);

// HOST:PORT of a node, also port 0 (the system picks).
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
Result<HostPort> parse_host_port(std::string_view text);

// "tcp://HOST:PORT".
std::string tcp_url(const std::string& host, std::uint16_t port);
// Fails unless the text is tcp://HOST:PORT that can be dialled: a port other
// than 0, a host of letters, digits and .-_:%
Result<void> check_url(std::string_view url);

}  // namespace skerry::protocol
