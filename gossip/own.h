// SPDX-License-Identifier: Apache-2.0
// The facts that this process publishes itself: when each must be signed anew,
// and with which version.
//
// An earlier start whose clock was ahead may have left a newer record. This
// process then takes a higher incarnation, so no two starts sign under one
// number. save_table() also keeps the incarnation on disk. Peers remember the
// version of such a record after it expires and refuse older ones, but no
// longer hold a record that shows it.
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

// RETURNS: the incarnation for a start whose clock says `unix_ms`. It exceeds
// every one that an earlier start kept in `saved` (save_table).
std::uint64_t incarnation_after(const std::string& saved, std::int64_t unix_ms, std::uint64_t seed);

class Own {
 public:
  explicit Own(const Config& config) : config_(config), highest_(config.incarnation) {}

  // Publishes a fact. Only the fact of `body` and whether it is withdrawn
  // matter. A repeated fact changes nothing. Nor does a fact that `held` states
  // already, a record of an earlier start that is `age` old (null: none). It is
  // signed anew when its time comes.
  void say(const Key& key, const pb::RecordBody& body, const Record* held, Duration age, Now now,
           Stream& random);
  bool says(const Key& key) const { return facts_.contains(key); }
  // RETURNS: the highest incarnation that any signature here uses or is due to
  // use.
  std::uint64_t incarnation() const { return highest_; }
  // Reports one of our records by another start, about any subject. The first
  // signature of every later fact exceeds it.
  void saw(const Record& record, Stream& random);
  // Reports that a peer holds this version of one of our records.
  // RETURNS: whether it exceeds ours; if so, due() signs ours anew.
  bool overtaken(const Record& record, Stream& random);

  // The table refused the signed record, for example because it lacks the run.
  // The record falls due again later.
  void say_again(const Key& key) { facts_.at(key).changed = true; }

  // RETURNS: the bodies to sign now, complete except for the author.
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
