// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <vector>

#include "base/clean_text.h"
#include "base/hash.h"
#include "base/hash_each.h"
#include "base/ids.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/text.h"

namespace skerry {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Stream, EveryPartOfThePositionMatters) {
  const Position origin{
      .seed = 1, .expert = 2, .attempt = 3, .step = 4, .sample = 5, .purpose = Purpose::kNoise};
  std::vector<Position> moved(6, origin);
  moved[0].seed = 9;
  moved[1].expert = 9;
  moved[2].attempt = 9;
  moved[3].step = 9;
  moved[4].sample = 9;
  moved[5].purpose = Purpose::kTime;
  const std::uint64_t first = Stream(origin).u64();
  EXPECT_EQ(first, Stream(origin).u64());
  for (const Position& position : moved) EXPECT_NE(first, Stream(position).u64());
}

TEST(Stream, NormalsHaveUnitMoments) {
  std::vector<float> values(200000);
  Stream({.seed = 7, .purpose = Purpose::kNoise}).fill_normal(values);
  double sum = 0, squares = 0;
  for (const float value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 200000, 0, 0.01);
  EXPECT_NEAR(squares / 200000, 1, 0.02);
}

TEST(Stream, BelowIsInRangeAndReachesBothEnds) {
  Stream stream({.seed = 3});
  std::array<int, 3> seen{};
  for (int i = 0; i < 300; ++i) ++seen.at(stream.below(3));
  EXPECT_THAT(seen, testing::Each(testing::Gt(60)));
}

// RFC 7693 gives BLAKE2b-512 only; this is the 256-bit digest of "abc" as b2sum
// -l 256 prints it.
TEST(Hash, Blake2bOfAbc) {
  EXPECT_EQ(blake2b("abc").hex(),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  Hasher hasher;
  hasher.update("a");
  hasher.update("bc");
  EXPECT_EQ(hasher.finish(), blake2b("abc"));
}

// Inputs that end in, at and after a block, more of them than lanes and fewer,
// long beside short.
TEST(Hash, each_of_many_is_what_it_is_alone) {
  std::vector<std::string> inputs;
  for (std::size_t bytes = 0; bytes < 400; ++bytes) {
    inputs.emplace_back();
    for (std::size_t i = 0; i < bytes * (bytes % 7 == 0 ? 50 : 1); ++i)
      inputs.back().push_back(static_cast<char>(i * 31 + bytes));
  }
  for (const std::size_t count : {0, 1, 2, 3, 5, 400}) {
    const std::vector<std::string_view> some(inputs.end() - static_cast<std::ptrdiff_t>(count),
                                             inputs.end());
    const std::vector<Hash> hashes = blake2b_each(some);
    ASSERT_EQ(hashes.size(), count);
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(hashes[i], blake2b(some[i])) << some[i].size();
  }
}

TEST(Hash, HexRoundTripAndRefusals) {
  const Hash hash = blake2b("x");
  EXPECT_EQ(Hash::from_hex(hash.hex()).value(), hash);
  EXPECT_EQ(Hash::from_raw(hash.raw()).value(), hash);
  EXPECT_FALSE(Hash::from_hex("abcd").has_value());
  EXPECT_FALSE(from_hex("0g").has_value());
  EXPECT_FALSE(from_hex("abc").has_value());
}

TEST(Epoch, GenerationOutranksCounter) {
  EXPECT_LT(Epoch(0, 0xffffffffffff), Epoch(1, 0));
  EXPECT_EQ(Epoch(3, 7).next(), Epoch(3, 8));
  EXPECT_EQ(Epoch(3, 7).generation(), 3);
  EXPECT_EQ(Epoch(3, 7).counter(), 7U);
}

// Whatever way a part takes, it reads as a stream prints it.
TEST(Text, ReadsAsAStreamPrintsIt) {
  const ExpertId expert{RunId("r-1"), 3};
  std::ostringstream stream;
  const auto check = [&](const auto&... parts) {
    stream.str("");
    (stream << ... << parts);
    EXPECT_EQ(text(parts...), stream.str());
  };
  check("a", std::string("b"), std::string_view("cd").substr(1), 'e', expert, expert.run, Epoch(7));
  check(0, -1, 2U, std::int64_t{INT64_MIN}, UINT64_MAX, short{-3}, static_cast<unsigned char>('x'),
        true);
  check(0.1, 1e30, 1.0 / 3, 2.5F);
  EXPECT_EQ(text(), "");
}

TEST(Hash, StandsInTheOrderOfItsBytes) {
  for (const std::size_t place : {0, 7, 8, 31}) {
    Hash low, high;
    low.bytes.fill(0x80);
    high.bytes.fill(0x80);
    low.bytes[place] = 0x7f;
    high.bytes[place] = 0xff;
    EXPECT_LT(low, high) << place;
    EXPECT_GT(high, low) << place;
    EXPECT_NE(low, high) << place;
  }
  EXPECT_EQ(blake2b("a") <=> blake2b("a"), std::strong_ordering::equal);
}

TEST(CleanText, KeepsWholeCharactersOnly) {
  EXPECT_EQ(clean_text("plain", 100), "plain");
  EXPECT_EQ(clean_text("caf\xc3\xa9", 100), "caf\xc3\xa9");
  EXPECT_EQ(clean_text("caf\xc3\xa9", 4), "caf");
  EXPECT_EQ(clean_text("\xff\xfe", 100), "??");
  EXPECT_EQ(clean_text("\xc0\xaf", 100), "??");
  EXPECT_EQ(clean_text("\xed\xa0\x80", 100), "???");
  EXPECT_EQ(clean_text("\xf0\x9f\x8c\x8a", 100), "\xf0\x9f\x8c\x8a");
  EXPECT_EQ(clean_text("\xf0\x9f\x8c", 100), "???");
}

TEST(Text, ForPeople) {
  EXPECT_EQ(human_bytes(17), "17 B");
  EXPECT_EQ(human_bytes(5 << 20), "5.0 MiB");
  EXPECT_EQ(human_duration(std::chrono::milliseconds(850)), "850 ms");
  EXPECT_EQ(human_duration(std::chrono::seconds(200)), "3 m 20 s");
  EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00.000Z");
}

TEST(InParallel, DoesEachOnce) {
  std::vector<std::atomic<int>> done(1000);
  EXPECT_TRUE(in_parallel(done.size(), [&](std::size_t i) -> Result<void> {
                ++done[i];
                return {};
              }).has_value());
  for (const auto& each : done) EXPECT_EQ(each, 1);
  EXPECT_TRUE(in_parallel(0, [](std::size_t) { return Result<void>(); }).has_value());
}

TEST(InParallel, AFailureIsReturnedAndNothingBeginsAfterIt) {
  constexpr std::size_t kMany = std::size_t{1} << 40;  // not to be done in a life
  const auto outcome = in_parallel(kMany, [](std::size_t i) -> Result<void> {
    if (i == 3) return fail(ErrorCode::kIo, "the third");
    return {};
  });
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message, "the third");
}

TEST(Machine, HasOneLabel) {
  EXPECT_FALSE(machine_label().empty());
  EXPECT_EQ(machine_label(), machine_label());
}

}  // namespace
}  // namespace skerry
