// SPDX-License-Identifier: Apache-2.0
// One engine as a child process: its channel, what it prints, and how it ends.
// One thread, the one that forks: the child dies with it (PR_SET_PDEATHSIG).
// Destroying it ends the child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "protocol/channel.h"

namespace skerry::daemon {

inline constexpr std::size_t kLastLines = 40;
// A card's memory is unmapped within a few seconds of SIGKILL, unless its
// driver hangs.
inline constexpr Duration kEngineEndLimit = std::chrono::seconds(10);
inline constexpr std::size_t kOpenLineBytes =
    64 << 10;  // of output without a line's end; more is cut into lines

class EngineProcess {
 public:
  // `command` is the program's path and its arguments; "--channel FD" is added.
  // `card`: the one that it sees, as CUDA_VISIBLE_DEVICES names it; empty: what
  // this process sees. kNotFound, kUnauthorised, kIo.
  static Result<EngineProcess> spawn(const std::vector<std::string>& command,
                                     const std::string& card = "");
  EngineProcess(EngineProcess&& other) noexcept;
  EngineProcess& operator=(EngineProcess&&) = delete;
  ~EngineProcess();

  pid_t pid() const { return pid_; }
  protocol::Channel& channel() { return channel_; }
  int output_fd() const { return output_.get(); }  // closed (−1) once it ended
  // What it printed since the last call, line by line, fit for a log.
  std::vector<std::string> read_output();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

  void kill();
  // Kills it and waits for its end. Afterwards is_gone().
  // RETURNS: false if it has not ended within `limit`, as in the
  // uninterruptible sleep of a driver that hangs. Then init inherits it, and
  // its card stays occupied.
  bool end(Duration limit);
  // To be called when the process was reaped with this status.
  void reaped(int status);
  bool is_gone() const { return pid_ <= 0; }
  // Of one that is gone: "exit code 1", "signal 11 (Segmentation fault)".
  std::string how() const;
  bool killed_for_memory() const;  // SIGKILL, and not from here

 private:
  EngineProcess(pid_t pid, protocol::Channel channel, UniqueFd output);
  void take_line(std::string line, std::vector<std::string>& out);

  pid_t pid_ = -1;
  protocol::Channel channel_;
  UniqueFd output_;
  std::string open_line_;
  std::deque<std::string> last_lines_;
  bool killed_here_ = false;
  int status_ = 0;
};

// The engine's program: `wanted` if given, else beside this program, else on
// PATH. kNotFound says where was looked.
Result<std::string> find_engine(const std::string& wanted);

}  // namespace skerry::daemon
