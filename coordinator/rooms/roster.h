// SPDX-License-Identifier: Apache-2.0
// The roster: which peers may use the coordinator, which are connected, and
// what each node reports about itself.
//
// Invariant: a name and a key belong to one id each. A node has at most one
// connection, and only its current incarnation is served. A token is used at
// most as often as it allows. A revoked key is never in the roster. A node that
// reports a notice with a deadline counts as draining. Notices are volatile.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/rooms/events.h"

namespace skerry::coordinator {

class Roster : Room {
 public:
  // LIFETIME: the other rooms outlive this one.
  Roster(Context& the_context, EventLog& events, const Runs& runs)
      : Room(the_context), events_(events), runs_(runs) {}

  const Table<Node>& all() const { return nodes_; }
  Table<Node>& all() { return nodes_; }
  const Node& at(const NodeId& id) const { return nodes_.at(id); }
  Node& at(const NodeId& id) { return nodes_.at(id); }
  const Node* find(const NodeId& id) const;
  Node* find(const NodeId& id) { return const_cast<Node*>(std::as_const(*this).find(id)); }
  const Node* find_key(const std::string& x25519) const;
  Node* find_key(const std::string& x25519) {
    return const_cast<Node*>(std::as_const(*this).find_key(x25519));
  }
  const std::map<std::string, NodeId>& ids() const { return ids_; }  // by name
  const Peers& peers() const { return peers_; }                      // that have sent Hello
  const Table<Plain<stored::RevokedKey>>& revoked_keys() const { return revoked_keys_; }
  bool is_live(const Node& node) const;
  static bool has_drained(const Node& node);
  std::string state(const Node& node) const;
  // RETURNS: why the node gets no work; empty if it may get some.
  std::string unusable_because(const Node& node) const;
  // RETURNS: until its machine may end; nothing if it reports no notice.
  std::optional<std::uint64_t> leaves_in_seconds(const Node& node) const;

  // RETURNS: how many nodes are in the roster.
  std::size_t start();
  // Whether the recovery window is open: after a start no lease ends before its
  // holder had time to reconnect (Config::arrival_pause).
  bool is_recovering() const { return now.boot < recovery_until_; }
  // Whether it was present before the start and has not reconnected.
  bool is_awaited(const NodeId& id) const { return awaited_.contains(id); }
  // The coordinator stalled for `lag`: extends the nodes' deadlines by it, and
  // ignores the connections that closed.
  void excuse(Duration lag);

  // ---- Enrolment (tokens.cc)
  Result<pb::Certificate> enrol(const EnrolReceived& event);
  // Adds a key, or gives an existing one another role and certificate.
  Node& admit(const NodeId& id, const std::string& ed25519, const std::string& x25519,
              pb::Role role, const std::string& name);
  const Table<Plain<stored::Token>>& tokens() const { return tokens_; }
  pb::TokenCreated make_token(pb::Role role, std::uint32_t uses, std::uint64_t ttl_seconds);
  void forget_dead_tokens();
  // RETURNS: false if there is no such token.
  bool revoke_token(const TokenId& id);

  // ---- Connections
  // Checks a Hello, and makes its connection the peer's only one.
  Result<void> connect(Node& node, const Received& event);
  void describe(Node& node, const Received& event);
  // A node connected, with its previous incarnation or a new one.
  void arrive(Node& node, const pb::Hello& hello);
  // The node may run its --idle-exec. It gets no lease until it says that it is
  // not idle.
  void let_stop(Node& node);
  void restart(Node& node, std::uint64_t incarnation);
  void appear(Node& node, const std::string& reason);
  // RETURNS: false if the heartbeat is stale; it changes nothing then.
  bool beat(Node& node, const pb::Heartbeat& beat);
  // It has fetched an object.
  void fetched(Node& node, const pb::Transfer& transfer);
  // RETURNS: bytes a second that it fetched of late; above 0.
  static double fetch_rate(const Node& node);
  void close(const ConnectionId& connection);
  // RETURNS: nodes whose connection closed and that did not reconnect within
  // Config::reconnect; each one once.
  std::vector<NodeId> take_unreturned();
  // RETURNS: when the next of them is due, or `latest` if that is earlier.
  Duration next_unreturned(Duration latest) const;
  // The node announced that it leaves, and it holds no lease.
  void leave(Node& node);
  void depart(Node& node, bool left);
  void check_drained(Node& node);
  // Forgets at most `most` nodes that have been absent for `gone_ms` and that
  // no other state names, the longest absent first.
  void forget_gone(std::int64_t gone_ms, std::size_t most);

  // ---- Admin requests
  void cordon(Node& node, bool cordoned);
  void drain(Node& node);
  void evict(Node& node);
  void revoke(Node& node, const std::string& reason);
  // RETURNS: the lines, once the node has sent them; until then nothing, and
  // the node is asked for them.
  std::optional<std::vector<std::string>> take_log(Node& node);
  void keep_log(Node& node, const pb::NodeLog& log);

  // ---- After a restore (recall.cc)
  void begin_recall();
  void check_recall();
  // RETURNS: the node that a certificate readmits, or null. It may connect to
  // return its records, and joins the roster after the recall.
  const pb::CertificateBody* find_readmitted(const std::string& x25519) const;
  void gave_back(const std::vector<NodeId>& holders);
  // REQUIRES: the node is not in the roster.
  void revoke_unknown(const NodeId& id, const std::string& reason);

  // ---- Versions of assignments
  void assignment_changed(const NodeId& id);
  // RETURNS: the newest durable version.
  std::uint64_t durable_version(const Node& node) const;
  // RETURNS: the last version given to an assignment or a log request; later
  // ones are higher.
  std::uint64_t last_version() const { return next_version_; }
  void batch_numbered();

  // RETURNS: what is wrong; empty if nothing is.
  std::string load(stored::Node record);
  std::string load(stored::Token record);
  std::string load(stored::RevokedKey record);

 private:
  static Session& session(Node& node) { return node.session.edit(); }
  Result<Plain<stored::Token>*> usable_token(const pb::EnrolRequest& request);
  Result<void> make_room();
  std::vector<NodeId> forgettable(std::int64_t gone_ms) const;
  void take_notice(Node& node, const pb::Heartbeat& beat);
  void asked_again(Node& node);
  void end_recall(const std::string& reason);
  Result<pb::Certificate> readmit(const EnrolReceived& event, const NodeId& id);

  EventLog& events_;
  const Runs& runs_;
  Table<Node> nodes_{context.journal, Kind::kNode};
  std::map<std::string, NodeId> ids_;
  std::map<std::string, NodeId> ids_of_keys_;  // X25519
  Table<Plain<stored::Token>> tokens_{context.journal, Kind::kToken};
  Table<Plain<stored::RevokedKey>> revoked_keys_{context.journal,
                                                 Kind::kRevoked};  // not in the roster
  Peers peers_;
  std::set<NodeId> awaited_;
  std::map<NodeId, Duration> closing_;  // nodes whose connection closed, since when
  Duration recovery_until_{};
  Duration recovery_limit_{};
  Duration recall_until_{};
  std::set<NodeId> recalled_;  // nodes that returned every revocation they hold
  std::map<std::string, pb::CertificateBody> readmitted_;  // by X25519
  std::uint64_t next_version_ = 0;
  std::set<NodeId> reversioned_;  // in this step
};

}  // namespace skerry::coordinator
