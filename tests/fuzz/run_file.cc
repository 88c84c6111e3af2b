// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_file.h"

#include "base/check.h"
#include "protocol/validate.h"
#include "tests/fuzz/sane.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {

// What the CLI accepts, the coordinator accepts.
Verdict run_file(std::string_view input) {
  const auto parsed = cli::parse_run_file(input, "run.toml");
  if (!parsed) {
    SKERRY_CHECK(parsed.error().message.starts_with("run.toml:"),
                 "a message that does not say where");
    return Verdict::kRefused;
  }
  check_sane(parsed->spec);
  const auto valid = protocol::validate_run_spec(parsed->spec);
  SKERRY_CHECK(valid.has_value(), "the coordinator refuses: ", valid.error().message);
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
