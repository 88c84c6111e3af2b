// SPDX-License-Identifier: Apache-2.0
// The transport over ZeroMQ: ROUTER and DEALER sockets, CURVE always on; ZAP
// decides by key.
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
  // what others dial, where it differs (rented hosts remap ports); see
  // parse_address
  std::string advertise;
  // must fit the process's descriptor limit, which is raised if the system
  // allows
  std::size_t connections = 512;
};

// Binds the three endpoints. On destruction, replies under way get at most one
// second to leave.
// ON FAILURE: kConflict names a port in use. kInvalid: the address is
// impossible. kExhausted: the descriptor limit is too low. kIo: no descriptor
// is left.
Result<std::unique_ptr<ServerTransport>> make_zmq_server(const Identity& identity,
                                                         const ServerOptions& options);

// Binds one address, HOST:PORT, where nodes and people talk to a node. It does
// not use `advertise`.
// ON FAILURE: as above.
Result<std::unique_ptr<ServerTransport>> make_zmq_peer_server(const Identity& identity,
                                                              const ServerOptions& options);

// Threads and descriptors that many clients of one process may share.
// THREADS: all these clients belong to one thread.
// ON FAILURE: kIo: the process has no descriptor left.
Result<std::shared_ptr<void>> share_zmq_context(std::size_t clients);

struct ClientOptions {
  Endpoints endpoints;
  std::string coordinator_key;              // Ed25519, raw: pins the server
  std::shared_ptr<void> context = nullptr;  // a shared one; none: its own
};

// Dials nothing yet. A dial that finds no free descriptor or socket is retried
// with backoff, like a refused one.
// ON FAILURE: kInvalid: a bad address or key. kIo: the process has no
// descriptor left.
Result<std::unique_ptr<ClientTransport>> make_zmq_client(const Identity& identity,
                                                         const ClientOptions& options);

// RETURNS: a client for a node's address, tcp://HOST:PORT. `key` is its Ed25519
// key; `context` a shared one, or none.
Result<std::unique_ptr<ClientTransport>> make_zmq_peer_client(const Identity& identity,
                                                              const std::string& url,
                                                              const std::string& key,
                                                              std::shared_ptr<void> context);

}  // namespace skerry::protocol
