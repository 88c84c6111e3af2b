// SPDX-License-Identifier: Apache-2.0
// The core of gossip: spreads signed records among connected peers until all
// hold the same. It does not decide who is alive; leases do. It owns no socket,
// disk, clock or thread: the host passes in events and carries out its effects.
//
// In each round it sends an offer to a few peers: the versions of the records
// that it received lately. A peer answers with its newer records and asks for
// those that it lacks. Now and then an offer carries a digest of the whole
// table (256 fingerprints). Where two digests differ, the peers exchange
// listings of those buckets, then the records that either side lacks.
// No message depends on an earlier one. The core keeps only counters for each
// peer, and a lost message costs one round.
//
// THREADS: one.
// ON FAILURE: input from outside never fails a call. The core refuses it and
// reports it in the effects.
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
  // LIFETIME: `self` and `verifier` outlive it; several objects may share a
  // verifier. `table` is empty, or load_table() read it from an earlier start.
  Gossip(Config config, const protocol::Signer& self, Verifier& verifier, Table table, Now now);
  Gossip(const Gossip&) = delete;
  Gossip& operator=(const Gossip&) = delete;

  // A connection opened to `peer`, whose identity the transport proved. The
  // coordinator is a peer like any other. `dialled`: this side dialled.
  void connected(const NodeId& peer, bool dialled, Now now);
  void disconnected(const NodeId& peer);
  // REQUIRES: `message` was validated. A message from a peer that is not
  // connected is ignored.
  void received(const NodeId& peer, const pb::GossipMessage& message, Now now);

  // Publishes a fact until the next call replaces it, and renews its signature.
  // Only the fact of `body` and `withdrawn` matter. The next round signs it.
  // ON FAILURE: kInvalid if the fact breaks a limit.
  Result<void> say(const pb::RecordBody& body, Now now);

  // Runs what is due. Call it at wake_at() at the latest; an earlier call does
  // no harm.
  void tick(Now now);
  Duration wake_at() const { return next_round_; }

  // Whether to ask every peer for all revocations that it holds. Peers of an
  // older version do not answer.
  void recall(bool asks) { recalls_ = asks; }
  // RETURNS: the peers that have sent all of their revocations since this
  // process asked.
  const std::set<NodeId>& recalled() const { return recalled_; }

  // RETURNS: the effects since the last call.
  Effects take_effects();

  // RETURNS: the table as bytes for a disk; load_table() and
  // incarnation_after() read them.
  std::string save(Now now) const;
  // Changes when this process begins to sign under a higher one. The host then
  // saves the table soon.
  std::uint64_t incarnation() const { return own_.incarnation(); }

  const Table& table() const { return table_; }
  const NodeId& self() const { return self_id_; }

 private:
  struct Peer {
    bool dialled = false;
    Duration heard{};             // when its last message or its connection came
    Duration digested{};          // when it last got a digest, or connected
    std::size_t messages = 0;     // received from it in this round
    std::size_t given_bytes = 0;  // sent to it in this round
    Position recalled_to = 0;     // it has sent its revocations before this position
  };
  struct News {
    RecordPtr record;
    Duration came{};
  };
  // The answer to one received message, and how full it is.
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
  std::map<NodeId, Duration> dialled_;   // dialled; not again before this time
  std::map<NodeId, Duration> reported_;  // not again before this time
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

// Converts the table to bytes for a disk, and back. load_table() checks every
// signature again and drops expired or unreadable records. `incarnation`: the
// highest that the holder has signed under; 0: it signs nothing.
std::string save_table(const Table& table, Now now, std::uint64_t incarnation = 0);
Table load_table(const std::string& saved, Verifier& verifier, Limits limits, Now now);

}  // namespace skerry::gossip
