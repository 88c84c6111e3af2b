// SPDX-License-Identifier: Apache-2.0
// From a person's HOST:PORT to three bound sockets and the addresses that
// others dial.
#pragma once

#include <string>

#include "base/result.h"
#include "protocol/endpoints.h"
#include "protocol/zmq_socket.h"

namespace skerry::protocol {

// parse_address, with an error that begins with the flag's name.
Result<Address> parse_flag(const char* flag, const std::string& address);
// The numeric form of a host to listen at; "*" is every address. kInvalid where
// it cannot be resolved.
Result<std::string> resolve_listen_host(const std::string& host);
// Binds and returns the port (the system's pick for 0). kConflict names a port
// in use.
Result<std::uint16_t> bind_port(ZmqSocket& socket, Endpoint endpoint, const std::string& host,
                                std::uint16_t port);
// What others dial: `advertise` where given, else where we listen; for every
// address, this machine's own.
Result<Endpoints> advertised(const std::string& advertise, const std::string& host,
                             const std::array<std::uint16_t, kEndpointCount>& ports);

}  // namespace skerry::protocol
