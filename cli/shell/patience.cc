// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/patience.h"

#include "base/text.h"

namespace skerry::cli {

bool may_pass(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kTimeout;
}

bool Patience::bears(const Error& error) {
  if (!met_ || !may_pass(error)) return false;
  if (!away_) command_.tell(text("the coordinator is away, trying again: ", error.message));
  away_ = true;
  return true;
}

void Patience::answered() {
  if (away_) command_.tell("the coordinator is back");
  met_ = true;
  away_ = false;
}

}  // namespace skerry::cli
