// SPDX-License-Identifier: Apache-2.0
// A fleet of gossip cores on a virtual clock and network, from one seed. The
// same cores run in the daemon. Half of the nodes can only dial. Messages are
// serialised, lost, doubled and late; connections break, clocks are wrong,
// nodes restart.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "gossip/gossip.h"
#include "tests/simulation/dice.h"

namespace skerry::simulation {

using namespace std::chrono_literals;

struct FleetConfig {
  std::uint64_t seed = 1;
  std::size_t nodes = 10;
  bool coordinator = true;      // member 0 is it, and everyone keeps a connection to it
  bool share_verifier = false;  // as if all were one process: each signature is checked once
  gossip::Config gossip;
  gossip::Limits limits;
};

struct FleetFaults {
  double loss = 0;
  double duplication = 0;
  Duration delay_most = 50ms;
};

// What a message costs besides its bytes: TCP/IP, ZMTP and CURVE headers,
// about.
inline constexpr std::uint64_t kMessageOverheadBytes = 90;

struct Member {
  std::size_t number = 0;
  protocol::Identity identity;
  pb::Certificate certificate;
  NodeId id;
  bool only_dials = false;
  bool lies = false;  // no core: the test plays it
  Duration clock_offset{};
  Duration booted{};   // its steady clock's zero
  unsigned group = 0;  // only members of one group reach each other
  std::string saved;   // its table, from its last stop
  std::unique_ptr<gossip::Gossip> core;
  gossip::Verifier* verifier = nullptr;
  std::unordered_map<std::size_t, std::uint64_t> links;  // to whom, which connection
  std::uint64_t starts = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;

  bool is_up() const { return core != nullptr || lies; }
};

class Fleet {
 public:
  explicit Fleet(FleetConfig config);

  std::size_t size() const { return members_.size(); }
  Member& member(std::size_t number) { return *members_[number]; }
  Member* find(const NodeId& id);
  // As its own clocks show it.
  skerry::Now now(const Member& member) const;
  Duration time() const { return time_; }

  void start(Member& member, gossip::Table table);
  void start(Member& member);  // with an empty table
  void stop(Member& member);   // remembers its table in `saved`
  gossip::Table empty_table() const;
  gossip::Table load(Member& member);
  void say(Member& member, const pb::RecordBody& fact);

  void dial(Member& from, Member& to);
  void hang_up(Member& one, Member& other);
  void set_group(Member& member, unsigned group);
  void send(Member& from, Member& to, std::string bytes);

  // Until `until`, or `done` after some event.
  void run(Duration until, const std::function<bool()>& done = {});

  FleetFaults faults;
  std::function<void(Member&, const gossip::Effects&)> on_effects;
  std::function<void(Member& liar, Member& from, const pb::GossipMessage&)> on_lie;

 private:
  struct Happening {
    Duration at{};
    std::uint64_t order = 0;
    std::size_t to = 0;
    std::size_t from = 0;    // a message…
    std::uint64_t link = 0;  // …over this connection; 0: a timer, of this start
    std::uint64_t start = 0;
    std::string bytes;
    bool operator>(const Happening& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  void set_timer(Member& member);
  void deliver(Happening& happening);
  void wake(Member& member);
  void carry_out(Member& member);
  void push(Happening happening);

  FleetConfig config_;
  Dice dice_;
  Duration time_{};
  std::uint64_t order_ = 0;
  std::uint64_t last_link_ = 0;
  std::vector<std::unique_ptr<gossip::Verifier>> verifiers_;
  std::vector<std::unique_ptr<Member>> members_;
  std::unordered_map<NodeId, std::size_t> numbers_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> queue_;
};

}  // namespace skerry::simulation
