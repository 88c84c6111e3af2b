// SPDX-License-Identifier: Apache-2.0
// Asks the coordinator for everything that the dashboard shows, once for all
// viewers, and writes the answers to the board.
//
// THREADS: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/shell/command.h"
#include "dashboard/board.h"
#include "dashboard/fleet_state.h"

namespace skerry::dashboard {

class Watcher {
 public:
  static constexpr std::size_t kEvents = 300;
  // Questions for an expert's history in one look. The rest comes with the
  // next, so that a long history delays no other document.
  static constexpr int kHistoryAsks = 128;

  // Gets each event once, in order. After the coordinator has restarted it gets
  // those from the first on.
  using OnEvents = std::function<void(const std::vector<pb::Event>&)>;

  // LIFETIME: both outlive this.
  Watcher(cli::Command& command, Board& board, OnEvents on_events)
      : command_(command), board_(board), on_events_(std::move(on_events)) {}

  // ON FAILURE: the board says that the coordinator is away, and keeps the
  // other documents as they were.
  Result<void> look();

  const FleetState& state() const { return state_; }

 private:
  Result<void> ask();
  Result<void> ask_run(const pb::RunInfo& listed);
  Result<void> ask_history(RunState& run);
  Result<void> ask_events();
  Result<void> ask_status();
  void read_anew();
  void show();
  void show_run(const RunState& run);
  void show_status();

  cli::Command& command_;
  Board& board_;
  const OnEvents on_events_;
  FleetState state_;
  std::vector<pb::NodeInfo> roster_;              // with people
  std::vector<pb::RunInfo> list_;                 // in the coordinator's order
  std::map<std::string, std::string> listed_;     // by run: what the list said last
  std::map<std::string, std::string> read_head_;  // by run and expert: up to which commit
  std::uint64_t last_event_ = 0;
  int history_asks_ = 0;
};

}  // namespace skerry::dashboard
