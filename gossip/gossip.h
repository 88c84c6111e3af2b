// SPDX-License-Identifier: Apache-2.0
// Spreads signed records among the peers that are connected, whoever dialled,
// until all hold the same. Who is alive is the lease's business, not this
// one's. It owns no socket, disk, clock or thread: the host feeds it what
// happened and carries out its effects.
//
// Each round it offers to a few peers the versions of what it had news of
// lately; a peer answers with what it has later news of and asks for what it
// lacks. Now and then a digest of all it holds goes along (256 fingerprints);
// where two differ, listings of those buckets follow, then what either lacks.
// No message depends on an earlier one, so nothing is kept for a peer but
// counters, and a lost message costs a round.
//
// Thread rule: one thread. Failure rule: what comes from outside never fails a
// call: it is refused, and told in the effects.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "gossip/config.h"
#include "gossip/effects.h"
#include "gossip/own.h"
#include "gossip/table.h"
#include "gossip/verifier.h"

namespace skerry::gossip {

class Gossip {
 public:
  // `self` and `verifier` outlive it; several may share a verifier. `table`:
  // empty, or what load_table made of an earlier start.
  Gossip(Config config, const protocol::Signer& self, Verifier& verifier, Table table, Now now);
  Gossip(const Gossip&) = delete;
  Gossip& operator=(const Gossip&) = delete;

  // A fresh connection to who the transport proved it to be; the coordinator is
  // a peer like others. `dialled`: by this side.
  void connected(const NodeId& peer, bool dialled, Now now);
  void disconnected(const NodeId& peer);
  // `message` was validated. From a peer that is not connected: ignored.
  void received(const NodeId& peer, const pb::GossipMessage& message, Now now);

  // From now on this process says so, until it says otherwise; it is signed
  // anew by itself. Only the fact of `body` and `withdrawn` matter. kInvalid
  // where the fact breaks a limit. Signed in the next round.
  Result<void> say(const pb::RecordBody& body, Now now);

  // Time has passed: at the latest at wake_at(), at any moment harmless.
  void tick(Now now);
  Duration wake_at() const { return next_round_; }

  // Whether every peer is asked for all revocations that it holds. Peers of an
  // older version do not answer.
  void recall(bool asks) { recalls_ = asks; }
  // Peers of this process's life that have given all of theirs since they were
  // asked.
  const std::set<NodeId>& recalled() const { return recalled_; }

  // Everything to do since the last call.
  Effects take_effects();

  // For a disk, as load_table and incarnation_after read it.
  std::string save(Now now) const;
  // Changes when this process begins to sign under a higher one: it is to be
  // saved soon then.
  std::uint64_t incarnation() const { return own_.incarnation(); }

  const Table& table() const { return table_; }
  const NodeId& self() const { return self_id_; }

 private:
  struct Peer {
    bool dialled = false;
    Duration heard{};             // when it last said anything, or came
    Duration digested{};          // when it last got a digest, or came
    std::size_t messages = 0;     // of it, this round
    std::size_t given_bytes = 0;  // to it, this round
    Position recalled_to = 0;     // it has given its revocations before this position
  };
  struct News {
    RecordPtr record;
    Duration came{};
  };
  // What becomes of one received message: the answer, and how full it is.
  struct Answer;

  bool is_alone(Now now) const;
  void start_round(Now now);
  void sign_due(Now now);
  void send_offers(Now now);
  void offer_to(const NodeId& peer, bool with_digest, Now now);
  void wish_for_peers(Now now);
  bool dial_one(Now now);
  std::vector<NodeId> other_peers() const;

  bool take(const NodeId& peer, const pb::SignedRecord& wire, Answer& answer, Now now);
  bool hold(const RecordPtr& record, Duration age, Origin origin, Now now);
  void cut_off_revoked();
  void answer_offer(const pb::HeadList& offer, Answer& answer, Now now);
  void answer_digest(const std::string& digest, Answer& answer, Now now);
  bool answer_listing(const pb::Listing& listing, Answer& answer, Now now);
  void ask_revocations(const NodeId& peer, const Peer& asked);
  void answer_recall(Position from, Answer& answer, Now now);
  void hear_recall(const NodeId& peer, Position to);
  void give(const Entry& entry, Answer& answer, Now now);
  void want(Position position, Answer& answer);
  void ban(const NodeId& peer, const std::string& reason, Now now);
  bool is_shut_out(const NodeId& peer, Now now) const;
  void report(const NodeId& author, const std::string& reason, Now now);
  std::string digest() const;

  Config config_;
  const protocol::Signer& self_;
  NodeId self_id_;
  Verifier& verifier_;
  Table table_;
  Own own_;
  Stream random_;
  Effects effects_;
  std::map<NodeId, Peer> peers_;
  std::deque<News> news_;                // newest first
  std::map<NodeId, Duration> banned_;    // until when
  std::map<NodeId, Duration> dialled_;   // wished for; not again before
  std::map<NodeId, Duration> reported_;  // not again before
  Duration next_round_{};
  Duration next_rotation_{};
  std::uint64_t round_ = 0;
  bool digest_is_due_ = true;
  std::uint64_t checked_before_ = 0;  // signatures, when the round began
  bool recalls_ = false;
  std::set<NodeId> recalled_;
};

// Where a host's store keeps the table.
inline constexpr char kTableKey[] = "gossip/table";

// The table as bytes for a disk, and back with every signature checked again;
// what is over or cannot be read is left out. `incarnation`: the highest that
// its holder has signed under; 0: it signs nothing.
std::string save_table(const Table& table, Now now, std::uint64_t incarnation = 0);
Table load_table(const std::string& saved, Verifier& verifier, Limits limits, Now now);

}  // namespace skerry::gossip
