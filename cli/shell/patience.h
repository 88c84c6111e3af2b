// SPDX-License-Identifier: Apache-2.0
// What a command that follows something does while the coordinator is away, for
// a restart or a broken link: it asks again, and says so once. A coordinator
// that was never there is an error at once.
#pragma once

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// Whether the same request may succeed later: a coordinator that is away comes
// back.
bool may_pass(const Error& error);

class Patience {
 public:
  explicit Patience(Command& command) : command_(command) {}  // which must outlive this
  // Whether to ask again after this failure.
  bool bears(const Error& error);
  void answered();
  bool away() const { return away_; }

 private:
  Command& command_;
  bool met_ = false;
  bool away_ = false;
};

}  // namespace skerry::cli
