// SPDX-License-Identifier: Apache-2.0
// What this process says itself: keeps each fact, and knows when it must be
// signed anew and with which version.
//
// A process that finds a newer record of its own, of an earlier start whose
// clock was ahead, takes an incarnation beyond that, so no two starts sign
// under one number. The disk keeps the incarnation as well (save_table): once
// such a record has expired, peers remember its version, refuse older ones and
// have nothing to show for it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "gossip/config.h"
#include "gossip/record.h"

namespace skerry::gossip {

// What a start whose clock says `unix_ms` signs under: beyond all that an
// earlier start kept in `saved` (save_table).
std::uint64_t incarnation_after(const std::string& saved, std::int64_t unix_ms, std::uint64_t seed);

class Own {
 public:
  explicit Own(const Config& config) : config_(config), highest_(config.incarnation) {}

  // Only the fact of `body` and whether it is withdrawn matter. The same again
  // changes nothing, nor does what a record of an earlier start says, `held`
  // (null: none), which is `age` old: it is signed anew when its time comes.
  void say(const Key& key, const pb::RecordBody& body, const Record* held, Duration age, Now now,
           Stream& random);
  bool says(const Key& key) const { return facts_.contains(key); }
  // The highest that anything here is, or will be, signed under.
  std::uint64_t incarnation() const { return highest_; }
  // One of our records by another start, whatever it is about: what is said
  // first from now on is beyond it.
  void saw(const Record& record, Stream& random);
  // Someone holds this version of one of our records. True: it is beyond ours,
  // and ours will be signed anew.
  bool overtaken(const Record& record, Stream& random);

  // What was signed could not be held, for want of its run for example: it is
  // due again in a while.
  void say_again(const Key& key) { facts_.at(key).changed = true; }

  // The bodies to sign now, complete but for the author.
  std::vector<pb::RecordBody> due(Now now, Stream& random);

 private:
  struct Fact {
    pb::RecordBody body;
    std::uint64_t incarnation = 0;
    std::uint64_t counter = 0;
    bool changed = true;
    std::optional<Duration> signed_at;
    Duration again_at{};
  };

  void go_beyond(const Record& record, Fact& fact, Stream& random);
  Duration lifetime() const;
  Duration until_again(Stream& random) const;

  const Config& config_;
  std::uint64_t highest_;
  std::map<Key, Fact> facts_;
};

}  // namespace skerry::gossip
