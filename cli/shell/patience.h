// SPDX-License-Identifier: Apache-2.0 Retry policy of commands that follow a
// run or events. While the coordinator is away, for a restart or a broken link,
// the command retries, and reports so once. A coordinator that never replied is
// an error at once.
#pragma once

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// Whether the same request may succeed later, because a coordinator that is
// away returns.
bool may_pass(const Error& error);

class Patience {
 public:
  // LIFETIME: `command` outlives this.
  explicit Patience(Command& command) : command_(command) {}
  // RETURNS: whether to retry after this failure.
  bool bears(const Error& error);
  void answered();
  bool away() const { return away_; }

 private:
  Command& command_;
  bool met_ = false;
  bool away_ = false;
};

}  // namespace skerry::cli
