// SPDX-License-Identifier: Apache-2.0
// The records that a process holds: at most one for each key, none twice dead,
// never more than the limits.
//
// Expiry counts lifetimes, not dates: a record carries its age from holder to
// holder, each adds what its own steady clock saw, and it dies when its age
// reaches the lifetime that its author signed. So nobody's wall clock can kill
// a live record. An age is not signed, so it is believed only within
// kClockSlack of what the signed date and the wall clock say: a liar moves a
// death by two hours, no further, and a clock an hour off moves none. (A date
// alone would let a receiver an hour ahead lose what is alive; a lifetime from
// receipt alone would let the dead live as long as they are passed on.) What
// died is remembered until no claimed age could make it alive again.
//
// Full: a record of less importance than all others is refused, else the least
// important goes. What the coordinator says is the most important, then it
// falls by kind (revocation, run, node, expert), then with the position; an
// author or a run that has its number of records keeps the most important of
// them. The order has nothing to do with arrival, so that tables with the same
// news hold the same.
//
// A value type; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "gossip/record.h"
#include "gossip/wire.h"
#include "protocol/limits.h"

namespace skerry::gossip {

enum class Verdict {
  kNew,         // held now
  kNewer,       // held now, in the place of an older one
  kHeld,        // known already
  kOlder,       // than what is held, or was
  kDead,        // over when it came, or died here before
  kRevoked,     // its author is
  kNoRun,       // of an expert whose run is not known (yet), or has no such expert
  kTooSoon,     // after the author's last change of it
  kUnimportant  // the table is full, or the author's or the run's share of it
};
inline bool is_held(Verdict verdict) {
  return verdict == Verdict::kNew || verdict == Verdict::kNewer;
}

struct Limits {
  std::size_t records = protocol::kGossipRecords;
  std::size_t bytes = protocol::kGossipTableBytes;
  std::size_t author_records = protocol::kGossipAuthorRecords;
  std::size_t run_records = protocol::kGossipRunRecords;
  std::size_t remembered_dead = protocol::kGossipRecords;
  Duration accept_least = std::chrono::seconds(5);
};

struct Entry {
  Position position = 0;
  RecordPtr record;
  std::uint32_t dies_at_s =
      0;  // by the steady clock; whole seconds, so that ten thousand take little room
  std::uint32_t came_at_s = 0;
};

// Where a record comes from. Only what a peer gave can come too soon after
// another; after what lay on a disk nothing does.
enum class Origin { kPeer, kSelf, kDisk };

class Table {
 public:
  explicit Table(NodeId coordinator, Limits limits = {})
      : coordinator_(std::move(coordinator)), limits_(limits) {}

  // Whether put would take such a record, as far as that can be said before its
  // signature is checked.
  Verdict judge(const Record& record, Duration age, Now now, Origin origin = Origin::kPeer) const;
  struct Change {
    Verdict verdict = Verdict::kNew;
    std::vector<RecordPtr> dropped;  // the record it replaced not among them
  };
  // REQUIRES: `record` is genuine.
  Change put(const RecordPtr& record, Duration age, Now now, Origin origin = Origin::kPeer);
  // Lets the dead go. Call now and then; what is dead is not handed out by
  // anything below before.
  void expire(Now now);

  const Entry* find(const Key& key,
                    Now now) const;  // null where there is none; until the next change
  const Entry* find_node(const NodeId& node, Now now) const;
  const Entry* find_run(const RunId& run, Now now) const;
  bool is_revoked(const NodeId& node, Now now) const;
  // What is held at `position`: one as a rule.
  std::vector<const Entry*> at(Position position, Now now) const;
  // Everything from range.first to range.last, growing.
  std::vector<const Entry*> in(Range range, Now now) const;
  void for_each(Now now, const std::function<void(const Entry&)>& visit) const;
  // Some entry, the `number`th modulo their count; null where there is none.
  const Entry* pick(std::uint64_t number) const;

  // The age that an entry has now, as it goes along when handed on.
  static Duration age(const Entry& entry, Now now);
  // Whether a head names something that would be news here; whether it is older
  // than what is here. Neither: alike or dead.
  struct Standing {
    bool lacking = false;
    bool behind = false;
  };
  Standing compare(const Head& head, Now now) const;
  // Whether another content with this version is held.
  bool contradicts(const Record& record) const;

  // The xor of the stamps in each bucket of positions, dead ones included until
  // expire. Equal tables have equal ones.
  const Fingerprints& fingerprints() const { return fingerprints_; }
  static std::size_t bucket_of(Position position) { return position >> 56; }
  static Range range_of_bucket(std::size_t bucket);

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t remembered_dead() const { return dead_.size(); }
  const Limits& limits() const { return limits_; }

 private:
  struct Bucket {
    std::vector<Entry> entries;  // by position, then key
    std::uint32_t next_death_s = UINT32_MAX;
  };
  // Left the table: no older version comes in its place, and it itself only if
  // it left for want of room.
  struct Dead {
    Key key;
    Version version;
    Duration until{};
    bool may_return = false;
  };

  const Entry* held(const Key& key, Position position) const;
  bool was_here(const Record& record) const;
  bool has_run(const Record& record, Now now) const;
  bool makes_room(const Record& record, Change& change, Now now);
  void insert(Entry entry);
  void erase(const Record& record);
  void bury(const Record& record, bool may_return, Now now);
  void drop(const RecordPtr& record, Change& change);
  void follow(const Record& record, Change& change, Now now);

  NodeId coordinator_;
  Limits limits_;
  std::array<Bucket, protocol::kGossipBuckets> buckets_;
  Fingerprints fingerprints_{};
  std::size_t size_ = 0;
  std::size_t bytes_ = 0;
  std::map<RunId, std::size_t> run_sizes_;  // records about its experts
  std::map<NodeId, Position> revocations_;  // of whom, and where the record stands
  std::multimap<Position, Dead> dead_;
  std::deque<std::pair<Duration, Position>> dead_order_;  // until when; growing
};

}  // namespace skerry::gossip
