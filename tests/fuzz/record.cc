// SPDX-License-Identifier: Apache-2.0
#include "gossip/record.h"

#include "base/check.h"
#include "gossip/gossip.h"
#include "gossip/testing/testing.h"
#include "protocol/limits.h"
#include "protocol/validate_gossip.h"
#include "tests/fuzz/sane.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace gossip;

void check_run(const pb::RunRecord& run) {
  std::int64_t last = -1;
  for (const std::uint32_t expert : run.without()) {
    SKERRY_CHECK(expert > last && expert < run.experts(), "an ensemble without expert ", expert,
                 " of ", run.experts());
    last = expert;
  }
}

void check_record(const Record& record) {
  if (!record.body.withdrawn()) {
    check_sane(record.body);
    check_run(record.body.run());
  }
  const Range range = range_of_node(record.key.author);
  SKERRY_CHECK(
      record.by_coordinator || (record.position >= range.first && record.position <= range.last),
      describe(record.key), " stands among another author's");
}

Verdict judge(const pb::SignedRecord& wire) {
  Verifier verifier(the_coordinator().ed25519_key());
  const auto opened = verifier.open(wire);
  if (!opened) return Verdict::kRefused;
  check_record(**opened);
  const auto checked = verifier.check(*opened, kToday);
  if (!checked) return Verdict::kRefused;
  const Record& record = **checked;
  const bool fleet_wide = record.key.kind == Kind::kRun || record.key.kind == Kind::kRevocation;
  SKERRY_CHECK(record.by_coordinator || !fleet_wide, "a node speaks for the coordinator");
  SKERRY_CHECK(record.by_coordinator || record.body.lifetime_ms() <= protocol::kNodeLifetimeMs,
               "a node's record that hardly ever dies");
  return Verdict::kAccepted;
}

// The body as its author would say it, signed: hardly any change would keep a
// signature right.
Verdict body(std::string_view bytes, const Author& author) {
  pb::RecordBody said;
  if (!said.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Verdict::kRefused;
  const auto wire = sign_record(std::move(said), author.identity, author.certificate);
  return wire ? judge(*wire) : Verdict::kRefused;
}

Verdict whole(std::string_view bytes) {
  pb::SignedRecord wire;
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Verdict::kRefused;
  return judge(wire);
}

Verdict message(std::string_view bytes) {
  const auto parsed = protocol::parse_gossip_message(bytes);
  if (!parsed) return Verdict::kRefused;
  check_comes_back(*parsed, protocol::parse_gossip_message);
  SKERRY_CHECK(parsed->records_size() <= static_cast<int>(protocol::kGossipMessageRecords),
               "too many records");
  for (const pb::SignedRecord& wire : parsed->records()) judge(wire);
  return Verdict::kAccepted;
}

// What a process finds on its disk.
Verdict saved(std::string_view bytes) {
  Verifier verifier(the_coordinator().ed25519_key());
  const Table table = load_table(std::string(bytes), verifier, {}, at({}));
  const Table again = load_table(save_table(table, at({})), verifier, {}, at({}));
  SKERRY_CHECK(again.size() == table.size() && again.fingerprints() == table.fingerprints(),
               "a table that differs when saved again");
  return table.size() > 0 ? Verdict::kAccepted : Verdict::kRefused;
}

}  // namespace

// n, c: the body of a record of a node, of the coordinator; r: a record; g: a
// gossip message; t: a saved table.
Verdict record(std::string_view input) {
  static const Author coordinator(0);
  static const Author node(1);
  if (input.empty()) return Verdict::kRefused;
  const std::string_view bytes = input.substr(1);
  switch (input.front()) {
    case 'n':
      return body(bytes, node);
    case 'c':
      return body(bytes, coordinator);
    case 'r':
      return whole(bytes);
    case 'g':
      return message(bytes);
    case 't':
      return saved(bytes);
    default:
      return Verdict::kRefused;
  }
}

}  // namespace skerry::fuzz
