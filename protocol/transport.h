// SPDX-License-Identifier: Apache-2.0
// The seam between hosts and the network: authenticated connections that carry
// whole messages. The real one (zmq_transport.h) and the one in memory
// (fake_transport.h) share one conformance suite.
//
// Only poll() blocks. A message is lost only if its connection ends: so
// requests carry an id, a timeout and an idempotent retry. Handlers may call
// send(), close(), dial() and set_allowed().
// THREADS: one.
#pragma once

#include <compare>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "protocol/endpoints.h"

namespace skerry::protocol {

// One connection at the server. A transport never reuses its id, which means
// nothing elsewhere.
struct Connection {
  Endpoint endpoint = Endpoint::kEnrol;
  std::string id;
  auto operator<=>(const Connection&) const = default;
};

struct Incoming {
  Connection connection;
  std::string public_key;  // raw X25519 key that the handshake proved
  std::string address;     // the peer's, for people; may be empty
  std::string bytes;       // at most the endpoint's limit; not validated
};

// The connection ended; no event of it follows. It comes at most once, and only
// for a connection that sent a message. It may be missing: a lease then runs
// into its time-to-live. A node that reconnected may already have a newer
// connection: act only if this is its latest.
struct Closed {
  Connection connection;
  std::string public_key;
};

// A peer that the transport refused or ended by itself, for people to read. One
// may come for every refusal.
struct TurnedAway {
  Endpoint endpoint = Endpoint::kEnrol;
  std::string public_key;  // raw; empty: not known
  std::string address;     // may be empty
  std::string why;         // one of a few phrases
};

using ServerEvent = std::variant<Incoming, Closed, TurnedAway>;

class ServerTransport {
 public:
  using Handler = std::function<void(ServerEvent)>;
  virtual ~ServerTransport() = default;

  // RETURNS: the addresses that others dial.
  virtual const Endpoints& endpoints() const = 0;

  // Sets the raw X25519 keys that may open control and blob; enrol accepts any.
  // A key that is left out is shut out, and stays out. Once this returns, none
  // of its messages is delivered. Its connections are closed, each with a
  // Closed if an event named it.
  virtual void set_allowed(std::unordered_set<std::string> keys) = 0;
  virtual void allow(const std::string& key) = 0;  // adds one key
  // Sets the raw X25519 keys that may not open peer, which accepts any other.
  // They are shut out as above.
  virtual void set_refused(std::unordered_set<std::string> keys) = 0;

  // Never blocks.
  // ON FAILURE: nothing was sent. kUnavailable if the peer is gone, kExhausted
  // if its queue is full.
  virtual Result<void> send(const Connection& connection, std::string_view bytes) = 0;
  virtual void close(const Connection& connection) = 0;

  // Waits for an event, for one of `readable` to be readable, or for the
  // timeout. Passes a bounded number of events a call to the handler; may
  // return early. A zero timeout does not wait.
  // RETURNS: the readable ones among `readable`.
  virtual Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                        const Handler& handle) = 0;

  // For a loop that waits elsewhere. Events may be there once one of these is
  // readable, or after any call above. Then poll without waiting until no event
  // comes. Empty: this transport has no descriptors.
  virtual std::vector<int> descriptors() const { return {}; }
};

// Client side.
struct Opened {  // a fresh connection: Hello goes first
  Endpoint endpoint;
};
struct Received {
  Endpoint endpoint;
  std::string bytes;
};
struct Lost {  // it was open and ended; the transport redials with backoff
  Endpoint endpoint;
};
struct Refused {  // the handshake failed; the transport redials with backoff
  Endpoint endpoint;
  // true: the server does not know our key; false: it is not the server whose
  // key we hold, or it is too busy
  bool own_key;
};
using ClientEvent = std::variant<Opened, Received, Lost, Refused>;

class ClientTransport {
 public:
  using Handler = std::function<void(ClientEvent)>;
  virtual ~ClientTransport() = default;

  // Starts to connect, and redials without end. Does nothing if it is already
  // dialling.
  virtual void dial(Endpoint endpoint) = 0;
  // Closes without an event. No event of the old connection follows.
  virtual void hang_up(Endpoint endpoint) = 0;
  // ON FAILURE: kUnavailable if not connected; no message is kept for later.
  // kExhausted if the queue is full: retry after a poll().
  virtual Result<void> send(Endpoint endpoint, std::string_view bytes) = 0;
  // As the server's. Opened comes before any message of that connection; a last
  // message may follow Lost.
  virtual Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                        const Handler& handle) = 0;
  virtual std::vector<int> descriptors() const { return {}; }  // as the server's
};

}  // namespace skerry::protocol
