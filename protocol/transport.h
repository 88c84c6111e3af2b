// SPDX-License-Identifier: Apache-2.0
// The seam between hosts and the network: authenticated connections that carry
// whole messages. Real (zmq_transport.h) and in memory (fake_transport.h),
// under one conformance suite.
//
// A transport belongs to one thread. Nothing blocks but poll. A message may be
// lost with its connection, and only then: requests carry an id, a timeout and
// an idempotent retry. Handlers may call send, close, dial and set_allowed.
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

// One connection at the server; its id is never used twice by one transport and
// means nothing outside it.
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

// The connection is over, and nothing of it comes afterwards. Comes at most
// once, only for a connection that has sent something, and may be missing (a
// lease then runs into its time-to-live). A node that has reconnected may have
// a newer connection already: act only if this is its latest.
struct Closed {
  Connection connection;
  std::string public_key;
};

// Somebody whom the transport refused or ended by itself. For people; as many
// may come as are refused.
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

  // What others dial.
  virtual const Endpoints& endpoints() const = 0;

  // Raw X25519 keys that may open control and blob; enrol takes any. A key that
  // is left out is thrown out: nothing it sent is delivered once this returns,
  // its connections are closed (each with a Closed where one was named), and it
  // cannot come back.
  virtual void set_allowed(std::unordered_set<std::string> keys) = 0;
  virtual void allow(const std::string& key) = 0;  // adds one
  // Raw X25519 keys that may not open peer, which takes any other. Thrown out
  // as above.
  virtual void set_refused(std::unordered_set<std::string> keys) = 0;

  // Never blocks. kUnavailable: the peer is gone. kExhausted: its queue is
  // full. Nothing was sent in both.
  virtual Result<void> send(const Connection& connection, std::string_view bytes) = 0;
  virtual void close(const Connection& connection) = 0;

  // Waits until an event, one of `readable` can be read, or the timeout passes;
  // hands the events to the handler, a bounded number a call; may return early.
  // Returns which of `readable` can be read. A zero timeout does not wait.
  virtual Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                        const Handler& handle) = 0;

  // For a loop that waits elsewhere: something may have come once one of these
  // can be read, or after any call above; then poll without waiting, until
  // nothing comes. Empty: this transport has none.
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
struct Lost {  // it was open and is over; dialled again by itself, with backoff
  Endpoint endpoint;
};
struct Refused {  // the handshake failed; dialled again by itself, with backoff
  Endpoint endpoint;
  bool
      // true: the server does not know our key; false: it is not the server
      // whose key we hold, or
      own_key;
  // too busy
};
using ClientEvent = std::variant<Opened, Received, Lost, Refused>;

class ClientTransport {
 public:
  using Handler = std::function<void(ClientEvent)>;
  virtual ~ClientTransport() = default;

  // Starts to connect, and goes on for ever. Dialling what is dialled does
  // nothing.
  virtual void dial(Endpoint endpoint) = 0;
  // Closes without an event. Nothing of the old connection is delivered
  // afterwards.
  virtual void hang_up(Endpoint endpoint) = 0;
  // kUnavailable: not connected now (nothing is kept for later). kExhausted:
  // the queue is full, try after a poll.
  virtual Result<void> send(Endpoint endpoint, std::string_view bytes) = 0;
  // As the server's. Opened comes before anything received over that
  // connection; a last message may come after Lost.
  virtual Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                        const Handler& handle) = 0;
  virtual std::vector<int> descriptors() const { return {}; }  // as the server's
};

}  // namespace skerry::protocol
