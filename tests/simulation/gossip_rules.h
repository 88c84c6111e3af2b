// SPDX-License-Identifier: Apache-2.0
// The safety rules of records, checked after every step of every process's
// gossip, by the ids of docs/internals/reliability.md. The code follows from
// the rules alone: it reads the tables, keeps its own account of each process,
// and checks signatures itself.
//
// - S10: a record is held only with the signature of its author. The
//   coordinator certified the author as a node, or is the author, and the same
//   process holds no revocation of it. Only the coordinator publishes runs and
//   revocations.
// - S11: within one process no record gives way to an older one, and an expired
//   record does not come back. No author signs two contents under one version,
//   in any of its lives. It signs under no older incarnation than its disk has
//   seen for that key, or, for a first record, for any key.
// - S15: tables, their memory of the dead, and connections keep their bounds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "gossip/table.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class GossipRules {
 public:
  explicit GossipRules(World& world) : world_(world) {}

  // A process and what it holds at this moment, by its own clock.
  struct Look {
    const std::string& name;
    const NodeId& self;
    const gossip::Table& table;
    std::size_t links = 0;
    std::size_t links_most = 0;
    Now now;
  };
  void stepped(const Look& look);
  // The next look at this name is of another process.
  void stopped(const std::string& name) { processes_.erase(name); }
  // Two processes sign by this key, or somebody else does: its versions say
  // nothing.
  void key_is_shared(const NodeId& node) { shared_.insert(node); }
  // On purpose, of its node record: all who hear of both are to hold the same
  // one.
  void signs_two_contents(const NodeId& node) {
    shared_.insert(node);
    two_faced_.insert(node);
  }
  const std::set<NodeId>& two_faced() const { return two_faced_; }

  // The disk of this process, whose author is `self`, knows from now on of
  // every word that `self` has signed.
  void saved(const std::string& name, const NodeId& self);
  void disk_lost(const NodeId& author) { kept_.erase(author); }
  // Whether the author of `version` has signed a newer one. A former holder of
  // that refuses older ones until it forgets.
  bool is_overtaken(const gossip::Key& key, const gossip::Version& version) const;
  // When this content was first held anywhere: when it was signed.
  Duration signed_at(const gossip::Version& version) const;
  bool has_expired(const std::string& name, const gossip::Version& version) const;

  // Every version of every record that was held anywhere, the older ones first.
  const std::map<gossip::Key, std::vector<gossip::RecordPtr>>& history() const { return history_; }

  // Lines for people: what each process learns and lets go.
  bool tells = false;
  std::string describe(const gossip::Record& record) const;

 private:
  struct Process {
    gossip::Fingerprints seen{};
    std::array<std::vector<gossip::Entry>, protocol::kGossipBuckets> held;
    std::map<gossip::Key, gossip::Version> highest;
    std::set<Hash> expired;  // bodies
    std::set<NodeId> revoked;
  };
  using Number = std::tuple<gossip::Key, std::uint64_t, std::uint64_t>;

  void changed(const Look& look, Process& process, std::size_t bucket,
               std::vector<gossip::Entry>& fresh);
  void check_content(const Look& look, const gossip::RecordPtr& held);
  void check_signed(const Look& look, const gossip::Record& record);
  static std::string what_is_wrong(const gossip::Record& record);
  void check_version(const Look& look, Process& process, const gossip::Record& record);
  void check_revoked(const Look& look, const Process& process,
                     const std::vector<gossip::Entry>& held);
  template <class... Parts>
  void fail_if(bool broken, const char* id, const Parts&... parts) {
    if (broken) world_.violated(id, text(parts...));
  }

  World& world_;
  std::map<std::string, Process> processes_;
  std::map<Hash, Duration> signed_at_;   // body → when
  std::map<Hash, std::string> genuine_;  // body → the signature that was found right
  std::map<Number, Hash> contents_;
  std::map<gossip::Key, gossip::Version> newest_;  // of all that was held anywhere
  // The highest incarnations that the author's disk knows of: of each key, and
  // of all.
  struct Kept {
    std::map<gossip::Key, std::uint64_t> of_key;
    std::uint64_t of_all = 0;
  };
  std::map<NodeId, Kept> kept_;
  std::set<NodeId> shared_;
  std::set<NodeId> two_faced_;
  std::map<gossip::Key, std::vector<gossip::RecordPtr>> history_;
};

}  // namespace skerry::simulation
