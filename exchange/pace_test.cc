// SPDX-License-Identifier: Apache-2.0
#include "exchange/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "exchange/rate.h"

namespace skerry::exchange {
namespace {

using namespace std::chrono_literals;

Now at(Duration boot) { return {.boot = boot}; }

TEST(TokenBucket, pays_for_what_was_taken_before_more_goes) {
  TokenBucket bucket(1000);
  EXPECT_TRUE(bucket.is_open(at(10s)));
  bucket.take(600, at(10s));  // of which 100 were saved up
  EXPECT_FALSE(bucket.is_open(at(10s)));
  EXPECT_EQ(bucket.opens_at(), 10s + 500ms);
  EXPECT_TRUE(bucket.is_open(at(bucket.opens_at())));
  bucket.give_back(600);
  EXPECT_TRUE(bucket.is_open(at(10s)));
}

TEST(TokenBucket, saves_up_no_more_than_a_moment) {
  TokenBucket bucket(1000);
  bucket.take(1, at(1s));
  std::size_t taken = 0;
  while (bucket.is_open(at(1000s))) bucket.take(10, at(1000s)), taken += 10;
  EXPECT_LE(taken, 110U);
}

TEST(TokenBucket, without_a_limit_is_always_open) {
  TokenBucket bucket(0);
  for (int i = 0; i < 100; ++i) bucket.take(1 << 30, at(1s));
  EXPECT_TRUE(bucket.is_open(at(1s)));
}

// A connection that carries `rate` bytes a second and takes `way` there and
// back, kept as full as its window says.
std::size_t window_after(double rate, Duration way, std::size_t chunk) {
  Speed speed;
  Duration now = 1s, line_free = now;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<Speed::Mark, Duration>> open;
    for (std::size_t bytes = 0; bytes == 0 || bytes < speed.window(); bytes += chunk) {
      line_free = std::max(line_free, now + way / 2) +
                  std::chrono::duration_cast<Duration>(
                      std::chrono::duration<double>(static_cast<double>(chunk) / rate));
      open.emplace_back(speed.mark(at(now)), line_free + way / 2);
    }
    for (const auto& [mark, back] : open) speed.received(mark, chunk, at(now = back));
  }
  return speed.window();
}

TEST(Speed, the_window_fills_the_link_and_not_much_more) {
  const std::size_t far = window_after(1e9, 100ms, 4 << 20);
  EXPECT_GT(far, 100'000'000U);
  EXPECT_LT(far, 400'000'000U);
  const std::size_t slow = window_after(1e5, 10ms, 4 << 20);
  EXPECT_LT(slow, std::size_t{4 << 20});  // one chunk, since one always may go
}

TEST(Speed, an_unknown_peer_gets_a_first_window) {
  const Speed speed;
  EXPECT_GE(speed.window(), std::size_t{4 << 20});
  EXPECT_GT(speed.expected(100), Duration{});
}

TEST(Rate, is_read_as_people_write_it) {
  EXPECT_EQ(parse_rate("16MB/s").value(), 16'000'000U);
  EXPECT_EQ(parse_rate("1.5 MiB/s").value(), 3U << 19);
  EXPECT_EQ(parse_rate("100Mbit/s").value(), 12'500'000U);
  EXPECT_EQ(parse_rate("300kB").value(), 300'000U);
  EXPECT_EQ(parse_rate("250000").value(), 250'000U);
  EXPECT_EQ(parse_rate("0").value(), 0U);
  EXPECT_EQ(parse_rate("off").value(), 0U);
}

TEST(Rate, what_cannot_be_meant_is_refused) {
  for (const char* words :
       {"", "fast", "16XB/s", "MB/s", "1.2.3MB/s", "-1MB/s", "16MB/h", "16MB/s ", "1e9GB/s",
        "999999999999999999999999GB/s", "nan", "16mB/s", "1000B/s"}) {
    const auto rate = parse_rate(words);
    ASSERT_FALSE(rate.has_value()) << words;
    EXPECT_EQ(rate.error().code, ErrorCode::kInvalid);
  }
  EXPECT_THAT(parse_rate("16X").error().message, testing::HasSubstr("expected a rate as 16MB/s"));
  EXPECT_THAT(parse_rate("1kB/s").error().message, testing::HasSubstr("too low: at least 200kB/s"));
}

}  // namespace
}  // namespace skerry::exchange
