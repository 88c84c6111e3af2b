// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/field_mutator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "protocol/skerry.pb.h"

namespace skerry::fuzz {
namespace {

pb::ControlRequest a_report() {
  pb::ControlRequest request;
  request.set_id(7);
  pb::SlotStatus& slot = *request.mutable_heartbeat()->add_slots();
  slot.set_loss(0.5);
  slot.set_run("r-1");
  return request;
}

std::string unchanged(std::string bytes) { return bytes; }

TEST(FieldMutator, ChangesAnyFieldOfAMessageAndItStaysAMessage) {
  const std::string before = a_report().SerializeAsString();
  std::set<std::string> seen;
  bool nan = false;
  bool other_id = false;
  bool without_run = false;
  bool doubled = false;
  for (unsigned seed = 1; seed < 2000; ++seed) {
    std::minstd_rand random(seed);
    const std::string after = mutate_fields(before, random, unchanged);
    pb::ControlRequest request;
    if (!request.ParseFromString(after))
      continue;  // a field of another wire type than the name has
    seen.insert(after);
    other_id = other_id || request.id() != 7;
    if (request.heartbeat().slots_size() == 2) doubled = true;
    if (request.heartbeat().slots_size() != 1) continue;
    nan = nan || std::isnan(request.heartbeat().slots(0).loss());
    without_run = without_run || request.heartbeat().slots(0).run().empty();
  }
  EXPECT_GT(seen.size(), 100U);
  EXPECT_TRUE(nan);
  EXPECT_TRUE(other_id);
  EXPECT_TRUE(without_run);
  EXPECT_TRUE(doubled);
}

TEST(FieldMutator, GivesNothingForWhatIsNoMessage) {
  std::minstd_rand random(1);
  EXPECT_EQ(mutate_fields("\x0a\x7f", random, unchanged), "");
}

}  // namespace
}  // namespace skerry::fuzz
