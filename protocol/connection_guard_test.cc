// SPDX-License-Identifier: Apache-2.0
#include "protocol/connection_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace skerry::protocol {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kSlack = 500;  // handshakes and heartbeats that are allowed for
constexpr std::uint64_t kStranger = 100'000;
constexpr std::uint64_t kStrangers = 180'000;
constexpr std::uint64_t kMember = 5'000'000;

struct Guarded : ::testing::Test {
  std::map<int, std::uint64_t> received;
  ConnectionGuard guard{{.strangers = 3,
                         .stranger_bytes = kStranger,
                         .strangers_bytes = kStrangers,
                         .member_bytes = kMember,
                         .member_connections = 3,
                         .member_silence = hours(1),
                         .silence = seconds(25)},
                        [this](int descriptor) { return received[descriptor]; }};
  Duration now{};

  void stranger(int descriptor) {
    EXPECT_FALSE(guard.accepted(descriptor, "10.0.0." + std::to_string(descriptor), now));
  }
  // A whole message comes, and is delivered.
  void hear(int descriptor, const std::string& key, std::uint64_t bytes) {
    received[descriptor] += bytes + 42;
    guard.heard(descriptor, key, bytes);
  }
  void member(int descriptor, const std::string& key) {
    stranger(descriptor);
    hear(descriptor, key, 100);
    EXPECT_THAT(check(), IsEmpty());
  }
  std::vector<int> check() {
    std::vector<int> descriptors;
    for (const Offender& offender : guard.check(now)) descriptors.push_back(offender.descriptor);
    return descriptors;
  }
};

TEST_F(Guarded, TheOldestStrangerMakesRoom) {
  for (const int each : {1, 2, 3}) stranger(each);
  const auto oldest = guard.accepted(4, "10.0.0.4", now);
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->descriptor, 1);
  EXPECT_EQ(oldest->address, "10.0.0.1");
  EXPECT_THAT(oldest->public_key, IsEmpty());
}

TEST_F(Guarded, AMemberMakesNoRoom) {
  member(1, "ada");
  for (const int each : {2, 3, 4}) stranger(each);
  EXPECT_EQ(guard.accepted(5, "", now)->descriptor, 2);
}

TEST_F(Guarded, AStrangerMaySendSoMuch) {
  stranger(1);
  received[1] = kStranger;
  EXPECT_THAT(check(), IsEmpty());
  received[1] = kStranger + kSlack;
  EXPECT_THAT(check(), ElementsAre(1));
  EXPECT_THAT(check(), IsEmpty()) << "it is named once";
}

TEST_F(Guarded, AllStrangersTogetherMaySendSoMuchAndTheOldestGoes) {
  for (const int each : {1, 2, 3}) {
    stranger(each);
    received[each] = kStrangers / 3 + kSlack;
  }
  EXPECT_THAT(check(), ElementsAre(1));
}

TEST_F(Guarded, AMessageThatDoesNotEndIsNamedWithItsKey) {
  member(1, "ada");
  received[1] += kMember;
  EXPECT_THAT(check(), IsEmpty());
  received[1] += kSlack;
  const auto found = guard.check(now);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].public_key, "ada");
  EXPECT_EQ(found[0].address, "10.0.0.1");
}

TEST_F(Guarded, AMessageThatDoesNotEndIsNotHiddenByOneBeforeIt) {
  member(1, "ada");
  hear(1, "ada", 100);
  received[1] += kMember + kSlack;
  EXPECT_THAT(check(), ElementsAre(1));
}

TEST_F(Guarded, TheConnectionsOfOneKeyCountTogether) {
  member(1, "ada");
  member(2, "ada");
  member(3, "bob");
  for (const int each : {1, 2, 3}) received[each] += kMember * 3 / 5;
  EXPECT_EQ(check().size(), 1u);
}

TEST_F(Guarded, WhoIsHeardMaySendAsMuchAsItLikes) {
  member(1, "ada");
  constexpr std::uint64_t kPart = 3'000'000;  // of the next message
  received[1] += kPart;
  for (int i = 0; i < 1000; ++i) {
    hear(1, "ada", 4'000'000);
    EXPECT_THAT(check(), IsEmpty());
    now += std::chrono::milliseconds(200);
  }
}

TEST_F(Guarded, HeartbeatsAreNoMessageThatDoesNotEnd) {
  member(1, "ada");
  now += minutes(59);
  received[1] += 82ULL * 60 * 59 + kMember;  // what ZeroMQ sends in an hour
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(Guarded, WhoIsLongNotHeardIsEndedWithoutBlame) {
  member(1, "ada");
  member(2, "bob");
  received[2] += 100'000;  // always so far ahead: it is never quits
  for (int i = 0; i < 60; ++i) {
    now += minutes(1);
    hear(2, "bob", 1000);
    const auto found = guard.check(now);
    ASSERT_EQ(found.size(), i < 59 ? 0u : 1u) << i;
    if (found.empty()) continue;
    EXPECT_EQ(found[0].descriptor, 1);
    EXPECT_THAT(found[0].why, IsEmpty());
  }
}

TEST_F(Guarded, AKeyHasSoManyConnections) {
  for (const int each : {1, 2, 3}) member(each, "ada");
  member(4, "bob");
  guard.accepted(5, "10.0.0.5", now);
  hear(5, "ada", 100);
  const auto found = guard.check(now);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].public_key, "ada");
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(Guarded, ADescriptorUsedAgainStartsAnew) {
  member(1, "ada");
  hear(1, "ada", 4'000'000);
  EXPECT_THAT(check(), IsEmpty());
  stranger(1);  // without its end having been told
  received[1] = kSlack;
  EXPECT_THAT(check(), IsEmpty());
  guard.ended(1, now);
  EXPECT_TRUE(guard.idle());
}

TEST_F(Guarded, AHandshakeThatIsNotFinishedIsNamedAtItsEnd) {
  stranger(1);
  stranger(2);
  now += seconds(1);
  EXPECT_FALSE(guard.ended(2, now)) << "it left";
  now += seconds(30);
  EXPECT_TRUE(guard.ended(1, now));
  member(3, "ada");
  now += hours(1);
  EXPECT_FALSE(guard.ended(3, now));
}

}  // namespace
}  // namespace skerry::protocol
