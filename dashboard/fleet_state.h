// SPDX-License-Identifier: Apache-2.0
// What the coordinator last said of everything that the dashboard shows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "dashboard/run_track.h"
#include "protocol/skerry.pb.h"

namespace skerry::dashboard {

struct RunState {
  pb::RunInfo info;  // with its experts
  RunTrack track;
};

struct FleetState {
  std::map<std::string, RunState> runs;  // by id
  std::vector<pb::NodeInfo> nodes;       // machines, no people
  std::deque<pb::Event> events;          // the newest, without commits and transfers
  pb::StatusReply coordinator;
  bool lacks_room = false;   // its disk is full
  std::int64_t unix_ms = 0;  // of the last answer
  // Why it does not answer; empty: it does.
  std::string away;
  std::int64_t away_since_unix_ms = 0;
};

}  // namespace skerry::dashboard
