// What this process says itself: keeps each fact, and knows when it must be signed anew and with which version.
//
// One that finds a newer record of its own among the peers, of an earlier start whose clock was ahead, takes an incarnation
// beyond that: so a start needs no number on disk, and no two starts sign under one number.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/random.h"
#include "gossip/config.h"
#include "gossip/record.h"

namespace skerry::gossip {

class Own {
 public:
  explicit Own(const Config& config) : config_(config) {}

  // Only the fact of `body` and whether it is withdrawn matter. The same again changes nothing, nor does what a record of an
  // earlier start says, `held` (null: none), which is `age` old: it is signed anew when its time comes.
  void say(const Key& key, const pb::RecordBody& body, const Record* held, Duration age, Now now,
           Stream& random);
  bool says(const Key& key) const { return facts_.contains(key); }
  // Someone holds this version of one of our records. True: it is beyond ours, and ours will be signed anew.
  bool overtaken(const Record& record, Stream& random);

  // What was signed could not be held, for want of its run for example: it is due again in a while.
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

  static void go_beyond(const Record& record, Fact& fact, Stream& random);
  Duration lifetime() const;
  Duration until_again(Stream& random) const;

  const Config& config_;
  std::map<Key, Fact> facts_;
};

}  // namespace skerry::gossip
