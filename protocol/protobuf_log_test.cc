// SPDX-License-Identifier: Apache-2.0
#include "protocol/protobuf_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "protocol/skerry.pb.h"

namespace skerry::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SetClock final : public Clock {
 public:
  Now now() const override { return time; }
  Now time{std::chrono::hours(1), 0};
};

// What parsing such a text a hundred times writes.
std::string parse_bad_texts() {
  ::testing::internal::CaptureStderr();
  pb::Named message;
  for (int i = 0; i < 100; ++i) message.ParseFromString("\x0a\x02\xff\xfe");
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProtobufLog, OneLineAMinuteWithTheNumberOfThoseLeftOut) {
  static SetClock clock;
  bound_protobuf_log(clock);
  const std::string first = parse_bad_texts();
  EXPECT_THAT(first, HasSubstr("UTF-8"));
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 1);
  EXPECT_THAT(parse_bad_texts(), IsEmpty());
  clock.time.boot += std::chrono::minutes(1);
  EXPECT_THAT(parse_bad_texts(), HasSubstr("left_out_before=199"));
}

}  // namespace
}  // namespace skerry::protocol
