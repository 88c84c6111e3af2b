// SPDX-License-Identifier: Apache-2.0
// Linked into the coordinator of a planted build alone: SKERRY_PLANTED_BUG
// names the bug of tests/planted/planted.h that is turned on.
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "tests/planted/planted.h"

namespace {

[[maybe_unused]] const bool done = [] {
  const char* wanted = std::getenv("SKERRY_PLANTED_BUG");
  if (wanted == nullptr) return false;
  SKERRY_CHECK(skerry::plant(wanted), "no planted bug ", std::string_view(wanted));
  return true;
}();

}  // namespace
