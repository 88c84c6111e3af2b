// SPDX-License-Identifier: Apache-2.0
#include "protocol/context.h"

#include "base/check.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace protocol;

bool same(const Context& a, const Context& b) {
  return a.name == b.name && a.role == b.role && a.endpoints == b.endpoints &&
         a.coordinator_key == b.coordinator_key && a.seed == b.seed && a.identity == b.identity &&
         a.certificate.SerializeAsString() == b.certificate.SerializeAsString();
}

}  // namespace

Verdict context(std::string_view input) {
  const auto parsed = parse_context(input, "context.toml");
  if (!parsed) {
    SKERRY_CHECK(parsed.error().message.starts_with("context.toml:"),
                 "a message that does not name the file");
    return Verdict::kRefused;
  }
  SKERRY_CHECK(!parsed->name.empty() && x25519_of(parsed->coordinator_key).has_value(),
               "incomplete");
  SKERRY_CHECK(parsed->seed.empty() != parsed->identity.empty(),
               "neither a seed nor where it is, or both");
  SKERRY_CHECK(parsed->seed.empty() || Identity::from_seed(parsed->seed).has_value(),
               "a seed that is none");
  const auto again = parse_context(format_context(*parsed), "context.toml");
  SKERRY_CHECK(again.has_value(), "refused when written again: ", again.error().message);
  SKERRY_CHECK(same(*parsed, *again), "differs when written again");
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
