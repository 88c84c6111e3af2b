// SPDX-License-Identifier: Apache-2.0
// Enemies of gossip in a simulation. Each joins the connections as a node of
// the cluster, hands its victims a record, and leaves again. A process that
// keeps such a record breaks a rule (gossip_rules.h), or has lost its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/gossip_ground.h"

namespace skerry::simulation {

class GossipEnemies {
 public:
  explicit GossipEnemies(Cluster& cluster);
  ~GossipEnemies();

  // Each is false where it finds nobody, or nothing, to do harm with.
  // A record changed after it was signed, or one that its author may not say.
  bool forged_record(Dice& dice);
  // A genuine record that was superseded, or has expired, said to be fresh.
  bool old_record(Dice& dice);
  // By a key that was revoked.
  bool revoked_record(Dice& dice);
  // By a key that no certificate of this coordinator names.
  bool unknown_signer(Dice& dice);
  // Two records of one version, each to another victim, by a node that was
  // certified.
  bool two_contents(Dice& dice);

  void key_was_revoked(const Identity& identity, const pb::Certificate& certificate);
  bool knows_revoked_key() const { return !revoked_.empty(); }

 private:
  struct Key {
    Identity identity;
    pb::Certificate certificate;
  };
  class Liar;

  // To one of the daemons that run, or a few.
  bool hand_out(Dice& dice, const pb::SignedRecord& record);
  gossip::RecordPtr pick(Dice& dice, bool newest) const;
  pb::SignedRecord node_record(Dice& dice, const Key& key) const;

  Cluster& cluster_;
  std::vector<Key> revoked_;
  std::vector<std::unique_ptr<Liar>> liars_;
  std::uint64_t count_ = 0;
};

}  // namespace skerry::simulation
