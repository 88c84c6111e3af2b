// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/words.h"

#include <charconv>

#include "base/text.h"
#include "cli/shell/output.h"

namespace skerry::cli {

Result<std::chrono::seconds> parse_duration(const std::string& words) {
  std::int64_t number = 0;
  const char* end = words.data() + words.size();
  const auto [rest, error] = std::from_chars(words.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const std::int64_t scale = unit.empty() || unit == "s" ? 1
                             : unit == "m"               ? 60
                             : unit == "h"               ? 3600
                             : unit == "d"               ? 86400
                                                         : 0;
  std::int64_t seconds = 0;
  if (error != std::errc{} || scale == 0 || number <= 0 ||
      __builtin_mul_overflow(number, scale, &seconds)) {
    return fail(
        ErrorCode::kInvalid,
        text("expected a duration such as 90s, 15m, 24h or 7d, found '", printable(words), "'"));
  }
  return std::chrono::seconds(seconds);
}

const char* role_name(pb::Role role) {
  switch (role) {
    case pb::ROLE_NODE:
      return "node";
    case pb::ROLE_VIEWER:
      return "viewer";
    case pb::ROLE_ADMIN:
      return "admin";
    default:
      return "none";
  }
}

Result<pb::Role> parse_role(const std::string& name) {
  for (const pb::Role role : {pb::ROLE_NODE, pb::ROLE_VIEWER, pb::ROLE_ADMIN}) {
    if (name == role_name(role)) return role;
  }
  return fail(ErrorCode::kInvalid,
              text("expected a role node, viewer or admin, found '", printable(name), "'"));
}

const char* phase_name(pb::SlotPhase phase) {
  switch (phase) {
    case pb::SLOT_FETCHING:
      return "fetching";
    case pb::SLOT_STARTING:
      return "starting";
    case pb::SLOT_TRAINING:
      return "training";
    case pb::SLOT_COMMITTING:
      return "committing";
    case pb::SLOT_FAILED:
      return "failed";
    default:
      return "idle";
  }
}

}  // namespace skerry::cli
