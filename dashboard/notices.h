// SPDX-License-Identifier: Apache-2.0
// Which events are sent to the outside, in which order and how often: the
// decisions, without I/O.
//
// Each notice is sent at least once, and the next only after it. One that fails
// kTries times is given up. The cursor is the number of the last event that was
// sent or given up; a restart goes on behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "protocol/skerry.pb.h"

namespace skerry::dashboard {

// RETURNS: expert_done, run_done, node_lost, expert_stuck, budget or disk_low;
// empty for an event that is not sent.
std::string notice_kind(const pb::Event& event);

class Notices {
 public:
  static constexpr int kTries = 12;  // over about an hour
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{600};  // doubles up to here
  static constexpr std::size_t kQueued = 4096;               // the oldest goes beyond

  // `cursor`: as it was stored; nullopt at the first start, which sends nothing
  // of the past.
  explicit Notices(std::optional<std::uint64_t> cursor) : cursor_(cursor) {}

  // The first call has every event of the coordinator. If all are older than
  // the cursor, the coordinator is another one, and the past is not sent.
  void offer(const std::vector<pb::Event>& events);

  // RETURNS: what is to be sent now; nullptr: nothing.
  const pb::Event* due(Duration now) const;
  void sent();  // due() was sent
  // RETURNS: whether it was given up.
  bool failed(Duration now);

  std::optional<std::uint64_t> cursor() const { return cursor_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void drop_first();

  std::optional<std::uint64_t> cursor_;
  bool started_ = false;
  std::deque<pb::Event> queue_;
  std::uint64_t dropped_ = 0;
  int tries_ = 0;
  Duration not_before_{};
};

}  // namespace skerry::dashboard
