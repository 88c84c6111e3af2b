// SPDX-License-Identifier: Apache-2.0
// The transport over ZeroMQ: ROUTER and DEALER sockets, CURVE always on, ZAP
// deciding by key.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"
#include "protocol/identity.h"
#include "protocol/transport.h"

namespace skerry::protocol {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // see parse_address
  std::string
      // what others dial, where it differs (rented hosts remap ports); see
      // parse_address
      advertise;
  std::size_t connections =
      512;  // must fit the process's descriptor limit, which is raised where allowed
};

// Binds the three endpoints. kConflict names a port in use; kInvalid an address
// that cannot be; kExhausted a descriptor limit that is too low; kIo that no
// descriptor is left. Destroying it gives replies that are on their way at most
// a second to leave.
Result<std::unique_ptr<ServerTransport>> make_zmq_server(const Identity& identity,
                                                         const ServerOptions& options);

// Binds one address, HOST:PORT, where nodes and people talk to a node;
// `advertise` is not for it. Fails as the above.
Result<std::unique_ptr<ServerTransport>> make_zmq_peer_server(const Identity& identity,
                                                              const ServerOptions& options);

// Threads and descriptors that many clients of one process may have in common.
// All of them then belong to one thread.
// ON FAILURE: kIo, the process has no descriptor left.
Result<std::shared_ptr<void>> share_zmq_context(std::size_t clients);

struct ClientOptions {
  Endpoints endpoints;
  std::string coordinator_key;              // Ed25519, raw: pins the server
  std::shared_ptr<void> context = nullptr;  // a shared one; none: its own
};

// Dials nothing yet. A dial that finds no descriptor left, or no socket of the
// context, is tried again with backoff, as one that is refused. ON FAILURE:
// kInvalid, an address or a key that is none; kIo, the process has no
// descriptor left.
Result<std::unique_ptr<ClientTransport>> make_zmq_client(const Identity& identity,
                                                         const ClientOptions& options);

// For a node's address, tcp://HOST:PORT; `key` is its Ed25519 key. `context`: a
// shared one, or none.
Result<std::unique_ptr<ClientTransport>> make_zmq_peer_client(const Identity& identity,
                                                              const std::string& url,
                                                              const std::string& key,
                                                              std::shared_ptr<void> context);

}  // namespace skerry::protocol
