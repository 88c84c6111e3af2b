// SPDX-License-Identifier: Apache-2.0
// Turns a person's HOST:PORT into three bound sockets and the addresses that
// others dial.
#pragma once

#include <string>

#include "base/result.h"
#include "protocol/endpoints.h"
#include "protocol/zmq_socket.h"

namespace skerry::protocol {

// parse_address, with an error that begins with the flag's name.
Result<Address> parse_flag(const char* flag, const std::string& address);
// RETURNS: the numeric form of a host to listen at; "*" is every address.
// ON FAILURE: kInvalid if the host cannot be resolved.
Result<std::string> resolve_listen_host(const std::string& host);
// Binds. RETURNS: the port; for port 0, the one that the system picked.
// ON FAILURE: kConflict names a port in use.
Result<std::uint16_t> bind_port(ZmqSocket& socket, Endpoint endpoint, const std::string& host,
                                std::uint16_t port);
// RETURNS: the addresses that others dial: `advertise` if given, else where
// this side listens. For "every address" it is this machine's own.
Result<Endpoints> advertised(const std::string& advertise, const std::string& host,
                             const std::array<std::uint16_t, kEndpointCount>& ports);

}  // namespace skerry::protocol
