// SPDX-License-Identifier: Apache-2.0
#include "protocol/endpoints.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

constexpr std::uint16_t kHighestFirstPort = 65535 - (kEndpointCount - 1);

Error bad_address(std::string_view address) {
  return fail(ErrorCode::kInvalid,
              text("address \"", address,
                   "\": expected HOST:PORT or HOST:ENROL,CONTROL,BLOB with ports up to 65535 "
                   "(an IPv6 host in brackets)"));
}

bool parse_port(std::string_view digits, std::uint16_t& port) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
}

// Splits at the colon before the ports. Refuses a bare IPv6 host by its second
// colon, since it would be ambiguous.
bool split(std::string_view address, std::string_view& host, std::string_view& ports) {
  if (address.starts_with('[')) {
    const auto close = address.find(']');
    if (close == std::string_view::npos) return false;
    host = address.substr(1, close - 1);
    ports = address.substr(close + 1);
    if (!ports.empty() && ports.front() != ':') return false;
  } else {
    const auto colon = address.find(':');
    host = address.substr(0, colon);
    ports = colon == std::string_view::npos ? std::string_view() : address.substr(colon);
  }
  if (ports == ":") return false;
  if (!ports.empty()) ports.remove_prefix(1);
  return !host.empty() && ports.find(':') == std::string_view::npos &&
         host.find_first_of(" \t\n/") == std::string_view::npos;
}

// RETURNS: the number of ports, one or all; 0 for anything else.
std::size_t parse_ports(std::string_view list, std::array<std::uint16_t, kEndpointCount>& ports) {
  std::size_t count = 0;
  while (true) {
    const auto comma = list.find(',');
    if (count == kEndpointCount || !parse_port(list.substr(0, comma), ports[count++])) return 0;
    if (comma == std::string_view::npos) return count == 1 || count == kEndpointCount ? count : 0;
    list.remove_prefix(comma + 1);
  }
}

// Whether ZeroMQ accepts it as a name or an address to dial.
bool is_host(std::string_view host) {
  const auto is_alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return (is_alphanumeric(host.front()) || host.front() == ':') &&
         std::ranges::all_of(host, [&](char c) {
           return is_alphanumeric(c) || std::string_view(".-:%_").find(c) != std::string_view::npos;
         });
}

}  // namespace

const char* to_string(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kEnrol:
      return "enrol";
    case Endpoint::kControl:
      return "control";
    case Endpoint::kBlob:
      return "blob";
    case Endpoint::kPeer:
      return "peer";
  }
  SKERRY_CHECK(false, "an endpoint outside its enumeration");
}

std::size_t limit_bytes(Endpoint endpoint) {
  if (endpoint == Endpoint::kEnrol) return kEnrolMessageBytes;
  return endpoint == Endpoint::kControl ? kControlMessageBytes : kBlobMessageBytes;
}

const std::string& Endpoints::of(Endpoint endpoint) const {
  switch (endpoint) {
    case Endpoint::kEnrol:
      return enrol;
    case Endpoint::kControl:
      return control;
    case Endpoint::kBlob:
      return blob;
    case Endpoint::kPeer:
      return peer;
  }
  SKERRY_CHECK(false, "an endpoint outside its enumeration");
}

std::string& Endpoints::of(Endpoint endpoint) {
  return const_cast<std::string&>(static_cast<const Endpoints&>(*this).of(endpoint));
}

Result<Address> parse_address(std::string_view address) {
  std::string_view host;
  std::string_view ports;
  Address parsed;
  const std::string standard = text(kDefaultPort);
  const std::size_t count =
      split(address, host, ports) ? parse_ports(ports.empty() ? standard : ports, parsed.ports) : 0;
  if (count == 0) return bad_address(address);
  if (count == 1 && parsed.ports[0] > kHighestFirstPort) {
    return fail(ErrorCode::kInvalid,
                text("address \"", address,
                     "\": control and blob have the two ports above this one, so it may be ",
                     kHighestFirstPort, " at most; or name all three: HOST:ENROL,CONTROL,BLOB"));
  }
  for (std::size_t i = count; i < kEndpointCount && parsed.ports[0] != 0; ++i)
    parsed.ports[i] = static_cast<std::uint16_t>(parsed.ports[0] + i);
  parsed.host = host;
  parsed.has_ports = !ports.empty();
  return parsed;
}

Result<HostPort> parse_host_port(std::string_view address) {
  std::string_view host;
  std::string_view digits;
  HostPort parsed;
  if (!split(address, host, digits) || !parse_port(digits, parsed.port)) {
    return fail(ErrorCode::kInvalid,
                text("address \"", address,
                     "\": expected HOST:PORT with a port up to 65535 (an IPv6 host in "
                     "brackets)"));
  }
  parsed.host = host;
  return parsed;
}

std::string tcp_url(const std::string& host, std::uint16_t port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? text("tcp://[", host, "]:", port) : text("tcp://", host, ":", port);
}

Result<void> check_url(std::string_view url) {
  constexpr std::string_view kScheme = "tcp://";
  std::string_view host;
  std::string_view ports;
  std::uint16_t port = 0;
  if (url.size() <= 300 && url.starts_with(kScheme) &&
      split(url.substr(kScheme.size()), host, ports) && is_host(host) && parse_port(ports, port) &&
      port != 0) {
    return {};
  }
  return fail(ErrorCode::kInvalid,
              text("endpoint \"", url.substr(0, 300), "\": expected tcp://HOST:PORT"));
}

}  // namespace skerry::protocol
