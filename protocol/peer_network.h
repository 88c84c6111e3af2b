// SPDX-License-Identifier: Apache-2.0
// The connections among nodes and people, dialled by either side: at most one
// to each peer. A peer must show a certificate that our coordinator signed for
// the key that its handshake proved. So an unknown node can connect while the
// coordinator is down, and a node that was shut out cannot.
//
// PeerConnected reports an outgoing connection as soon as it opens; this side's
// hello goes first. It reports an incoming connection together with the peer's
// hello. The network delivers no message of a peer before it has checked its
// hello. If two peers dial each other at once, the connection dialled by the
// smaller id stays.
//
// Nothing blocks.
// THREADS: one.
// ON FAILURE: it closes a peer that breaks the rules and reports
// PeerTurnedAway.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "protocol/identity.h"
#include "protocol/transport.h"

namespace skerry::protocol {

// incoming, and the same number again of outgoing ones
inline constexpr std::size_t kPeersMost = 128;
// remembered; the entry that expires soonest makes room
inline constexpr std::size_t kShutOutMost = 4096;
inline constexpr Duration kDialWithin = std::chrono::seconds(10);

// Checks that a hello's sender may talk to nodes of this coordinator: its
// certificate is for the X25519 key that the handshake proved.
// ON FAILURE: kUnauthorised or kCorrupt.
Result<pb::CertificateBody> check_admission(const pb::BlobHello& hello,
                                            std::string_view coordinator_key,
                                            std::string_view connection_key,
                                            std::int64_t now_unix_ms);

struct PeerConnected {
  NodeId peer;
  bool dialled = false;  // by this side
};
struct PeerMessage {
  NodeId peer;
  pb::BlobMessage message;  // validated, except its gossip
};
struct PeerGone {
  NodeId peer;
};
struct PeerTurnedAway {
  std::string public_key;  // X25519, raw; may be empty
  std::string address;     // may be empty
  std::string why;
};
using PeerEvent = std::variant<PeerConnected, PeerMessage, PeerGone, PeerTurnedAway>;

// The interface of those connections. PeerNetwork implements it, and so does a
// simulation (tests/simulation/peer_mesh.h). PeerNetwork describes each method.
class PeerLinks {
 public:
  using Handler = std::function<void(PeerEvent)>;
  virtual ~PeerLinks() = default;
  virtual std::string listens_at() const = 0;
  virtual Result<void> dial(const std::string& url, const std::string& ed25519_key) = 0;
  virtual bool is_connected(const NodeId& peer) const = 0;
  virtual Result<void> send(const NodeId& peer, std::string_view bytes) = 0;
  virtual void close(const NodeId& peer) = 0;
  virtual void shut_out(const NodeId& peer, const std::string& x25519_key, Duration until) = 0;
  virtual bool poll(const Handler& handle) = 0;
  virtual std::vector<int> descriptors() const = 0;
};

class PeerNetwork final : public PeerLinks {
 public:
  // RETURNS: a client that has dialled nothing yet, for the node at
  // tcp://HOST:PORT with this Ed25519 key.
  using MakeClient = std::function<Result<std::unique_ptr<ClientTransport>>(
      const std::string& url, const std::string& ed25519_key)>;
  struct Parts {
    NodeId self;
    std::string coordinator_key;              // Ed25519
    std::unique_ptr<ServerTransport> server;  // none: this side only dials
    MakeClient make_client;
  };
  // LIFETIME: `clock` outlives it.
  PeerNetwork(Parts parts, const Clock& clock);

  // RETURNS: the address at which this side listens, tcp://HOST:PORT; empty:
  // none.
  std::string listens_at() const override {
    return parts_.server ? parts_.server->endpoints().peer : std::string();
  }

  // Starts to dial a peer. Does nothing if the peer is connected, being dialled
  // or shut out, or if there are too many connections. Gives up after
  // kDialWithin without an answer; PeerConnected reports success.
  // ON FAILURE: kInvalid for a bad address or key.
  Result<void> dial(const std::string& url, const std::string& ed25519_key) override;
  bool is_connected(const NodeId& peer) const override;
  bool is_dialling(const NodeId& peer) const;
  std::vector<NodeId> connected() const;

  // ON FAILURE: kUnavailable if not connected. kExhausted if its queue is full:
  // retry after a poll().
  Result<void> send(const NodeId& peer, std::string_view bytes) override;
  // Closes the connection without an event.
  void close(const NodeId& peer) override;
  // Closes the connection and refuses the peer until then. With `x25519_key`
  // the handshake already refuses it; empty: not known.
  void shut_out(const NodeId& peer, const std::string& x25519_key, Duration until) override;

  // Handles what has arrived, without waiting.
  // RETURNS: true if there may be more: call again before waiting for
  // descriptors().
  bool poll(const Handler& handle) override;
  std::vector<int> descriptors() const override;

 private:
  struct Link {
    std::unique_ptr<ClientTransport> client;  // of an outgoing connection
    Connection connection;                    // of an incoming connection
    std::string key;                          // X25519
    bool open = false;                        // PeerConnected was reported
    bool greeted = false;                     // its hello was valid
    Duration give_up{};
    bool dialled() const { return client != nullptr; }
  };
  struct Shut {
    std::string key;
    Duration until{};
  };

  void on_server(ServerEvent event, const Handler& handle);
  void on_client(const NodeId& peer, ClientEvent event, const Handler& handle);
  void admit(Incoming message, const Handler& handle);
  void hear(const NodeId& peer, const std::string& bytes, const Handler& handle);
  Result<void> check_hello(const NodeId& peer, const Link& link,
                           const pb::BlobMessage& message) const;
  void refuse(const Incoming& message, const std::string& why, const Handler& handle);
  void drop(const NodeId& peer, const Handler& handle);
  void forget(const NodeId& peer);
  bool is_shut_out(const NodeId& peer) const;
  void let_in_again();
  void tell_server();
  std::size_t count(bool dialled) const;

  Parts parts_;
  const Clock& clock_;
  std::map<NodeId, Link> links_;
  std::map<std::string, NodeId> inbound_;  // by the connection's id
  std::map<NodeId, Shut> shut_out_;
};

}  // namespace skerry::protocol
