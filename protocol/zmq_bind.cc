// SPDX-License-Identifier: Apache-2.0
#include "protocol/zmq_bind.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"

namespace skerry::protocol {
namespace {

bool is_any(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// The address from which this machine would reach others; connecting a datagram
// socket sends no packet.
std::string own_address() {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &other.sin_addr);  // RFC 5737: nobody's
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&other), sizeof other) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return "127.0.0.1";
  }
  std::array<char, INET_ADDRSTRLEN> name{};
  ::inet_ntop(AF_INET, &own.sin_addr, name.data(), name.size());
  return name.data();
}

Error bind_error(Endpoint endpoint, const std::string& host, std::uint16_t port) {
  const int number = zmq_errno();
  const char* const flag = endpoint == Endpoint::kPeer ? "--peer-listen" : "--listen";
  if (number == EADDRINUSE) {
    return fail(ErrorCode::kConflict,
                text("port ", port, " of ", host, " (", to_string(endpoint),
                     ") is in use by another program: stop it, or listen elsewhere (", flag, ")"));
  }
  if (number == EADDRNOTAVAIL || number == ENODEV) {
    return fail(ErrorCode::kInvalid, text(host, " is no address of this machine (", flag, ")"));
  }
  if (number == EACCES) {
    return fail(ErrorCode::kUnauthorised,
                text("port ", port, " needs a privilege: use one above 1023 (", flag, ")"));
  }
  return zmq_error(text("cannot listen at ", host, " port ", port));
}

}  // namespace

Result<Address> parse_flag(const char* flag, const std::string& address) {
  return parse_address(address).map_error(
      [flag](const Error& error) { return fail(error.code, text(flag, ": ", error.message)); });
}

Result<std::string> resolve_listen_host(const std::string& host) {
  if (host == "*") return std::string("0.0.0.0");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0 || found == nullptr) {
    return fail(ErrorCode::kInvalid,
                text("cannot listen at \"", host, "\": ", ::gai_strerror(status)));
  }
  std::array<char, NI_MAXHOST> name{};
  const int named = ::getnameinfo(found->ai_addr, found->ai_addrlen, name.data(), name.size(),
                                  nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(found);
  if (named != 0) return fail(ErrorCode::kInvalid, text("cannot listen at \"", host, '"'));
  return std::string(name.data());
}

Result<std::uint16_t> bind_port(ZmqSocket& socket, Endpoint endpoint, const std::string& host,
                                std::uint16_t port) {
  std::string url = tcp_url(host, port);
  if (port == 0) url.replace(url.size() - 1, 1, "*");
  if (zmq_bind(socket.get(), url.c_str()) != 0) return bind_error(endpoint, host, port);
  std::array<char, 256> bound{};
  std::size_t size = bound.size();
  if (zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, bound.data(), &size) != 0)
    return zmq_error("last endpoint");
  const std::string_view name = bound.data();
  std::uint16_t picked = 0;
  std::from_chars(name.data() + name.rfind(':') + 1, name.data() + name.size(), picked);
  return picked;
}

Result<Endpoints> advertised(const std::string& advertise, const std::string& host,
                             const std::array<std::uint16_t, kEndpointCount>& ports) {
  Address address{is_any(host) ? own_address() : host, ports, true};
  if (!advertise.empty()) {
    ASSIGN_OR_RETURN(const Address given, parse_flag("--advertise", advertise));
    if (given.has_ports && std::count(given.ports.begin(), given.ports.end(), 0) > 0) {
      return fail(ErrorCode::kInvalid,
                  text("--advertise: address \"", advertise, "\": port 0 cannot be dialled"));
    }
    address.host = given.host;
    if (given.has_ports) address.ports = given.ports;
  }
  Endpoints endpoints;
  for (std::size_t i = 0; i < kEndpointCount; ++i) {
    endpoints.of(kAllEndpoints[i]) = tcp_url(address.host, address.ports[i]);
  }
  return endpoints;
}

}  // namespace skerry::protocol
