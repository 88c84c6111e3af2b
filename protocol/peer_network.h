// SPDX-License-Identifier: Apache-2.0
// The connections among nodes and people, whoever dialled: at most one to each
// peer, and only to those who show a certificate that our coordinator signed
// for the key that their handshake proved. So whom a node never heard of comes
// in, with the coordinator gone too, and who was shut out does not.
//
// A connection that this side dialled is told by PeerConnected as soon as it is
// open: its hello goes first. One that the other side dialled is told with that
// side's hello. Nothing of a peer is delivered before its hello has been found
// good. Two that dial each other at once keep the connection that the smaller
// id dialled.
//
// Thread rule: one thread. Nothing blocks. Failure rule: a peer that breaks the
// rules is closed and told as PeerTurnedAway.
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

inline constexpr std::size_t kPeersMost = 128;  // that dialled us, and again that we dial
inline constexpr std::size_t kShutOutMost =
    4096;  // remembered; the one that would come in soonest is forgotten
inline constexpr Duration kDialWithin = std::chrono::seconds(10);

// Whether a hello's sender may talk to nodes of this coordinator: its
// certificate, for the X25519 key that the handshake proved. kUnauthorised or
// kCorrupt otherwise.
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
  pb::BlobMessage message;  // validated but for its gossip
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

// What is asked of those connections; besides PeerNetwork there is a
// simulation's (tests/simulation/peer_mesh.h). Each method as it is told at
// PeerNetwork.
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
  // A client that dials nothing yet, of a node at tcp://HOST:PORT with this
  // Ed25519 key.
  using MakeClient = std::function<Result<std::unique_ptr<ClientTransport>>(
      const std::string& url, const std::string& ed25519_key)>;
  struct Parts {
    NodeId self;
    std::string coordinator_key;              // Ed25519
    std::unique_ptr<ServerTransport> server;  // none: this side only dials
    MakeClient make_client;
  };
  // `clock` outlives it.
  PeerNetwork(Parts parts, const Clock& clock);

  // Where this side listens, tcp://HOST:PORT; empty: nowhere.
  std::string listens_at() const override {
    return parts_.server ? parts_.server->endpoints().peer : std::string();
  }

  // A wish: nothing where it is connected, under way, shut out, or there are
  // too many. Given up after kDialWithin without a word; PeerConnected tells of
  // success. kInvalid: not an address, not a key.
  Result<void> dial(const std::string& url, const std::string& ed25519_key) override;
  bool is_connected(const NodeId& peer) const override;
  bool is_dialling(const NodeId& peer) const;
  std::vector<NodeId> connected() const;

  // kUnavailable: not connected. kExhausted: its queue is full, try after a
  // poll.
  Result<void> send(const NodeId& peer, std::string_view bytes) override;
  // Without an event.
  void close(const NodeId& peer) override;
  // Closes it, and lets it in no more before then. `x25519_key`: refused at the
  // handshake already; empty: not known.
  void shut_out(const NodeId& peer, const std::string& x25519_key, Duration until) override;

  // What has come, without waiting. True: perhaps not all, call again before
  // waiting for descriptors().
  bool poll(const Handler& handle) override;
  std::vector<int> descriptors() const override;

 private:
  struct Link {
    std::unique_ptr<ClientTransport> client;  // of one that was dialled here
    Connection connection;                    // of one that dialled here
    std::string key;                          // X25519
    bool open = false;                        // PeerConnected was told
    bool greeted = false;                     // its hello was good
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
