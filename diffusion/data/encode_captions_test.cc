// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/encode_captions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "diffusion/formats/half.h"
#include "diffusion/sample/prompts.h"
#include "diffusion/testing/test_images.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;

constexpr std::int32_t kEnd = 1;

// An id for each letter.
Result<std::vector<std::vector<std::int32_t>>> letters(std::span<const std::string> texts) {
  std::vector<std::vector<std::int32_t>> all;
  for (const std::string& each : texts) {
    std::vector<std::int32_t> ids;
    for (const char c : each) {
      if (c != ' ') ids.push_back(c);
    }
    ids.push_back(kEnd);
    all.push_back(std::move(ids));
  }
  return all;
}

// A token is its id and the caption's length.
class Letters final : public TextEncoder {
 public:
  std::vector<std::size_t> batches;  // captions of each
  std::int32_t beyond = 0;           // an id whose value is not finite in 16 bits
  float value = 1e5F;
  std::uint64_t dim() const override { return 2; }
  Result<std::vector<float>> encode(std::span<const std::int32_t> ids,
                                    std::size_t captions) override {
    batches.push_back(captions);
    std::vector<float> out;
    for (const std::int32_t id : ids) {
      out.push_back(id == beyond ? value : static_cast<float>(id));
      out.push_back(static_cast<float>(ids.size() / captions));
    }
    return out;
  }
};

class EncodeCaptions : public ::testing::Test {
 protected:
  Result<EncodedCaptions> encode(const std::vector<std::string>& texts, std::uint32_t longest = 10,
                                 const char* key = "key") {
    auto kept = KeptBatches::open(folder_.path("kept"));
    EXPECT_TRUE(kept);
    std::vector<std::uint32_t> of(texts.size());
    for (std::uint32_t i = 0; i < of.size(); ++i) of[i] = i;
    encoder_.batches.clear();
    return encode_captions(texts, of, longest, letters, encoder_, blake2b(key), *kept,
                           folder_.path("."), [](const Progress&) {});
  }
  // What each image's caption is in a file.
  std::vector<std::string> read_back(const Captions& captions, std::uint32_t images) {
    std::vector<std::uint32_t> all(images);
    for (std::uint32_t i = 0; i < images; ++i) all[i] = i;
    const std::string path = folder_.path("captions");
    const auto rows = captions.write(path, all);
    const auto file = storage::Safetensors::open(path);
    EXPECT_TRUE(rows && file);
    const auto begin = values<std::int64_t>(file->tensor("begin")->data);
    const auto tokens = values<std::uint16_t>(file->tensor("tokens")->data);
    std::vector<std::string> words;
    for (const std::int32_t row : *rows) {
      std::string word;
      for (auto t = begin[static_cast<std::size_t>(row)];
           t < begin[static_cast<std::size_t>(row) + 1]; ++t) {
        const float id = from_half(tokens[static_cast<std::size_t>(2 * t)]);
        word += id == kEnd ? '.' : static_cast<char>(id);
      }
      words.push_back(word);
    }
    return words;
  }
  template <class Value>
  static std::vector<Value> values(std::string_view bytes) {
    std::vector<Value> out(bytes.size() / sizeof(Value));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }

  const TemporaryFolder folder_;
  Letters encoder_;
};

TEST_F(EncodeCaptions, OfOneLengthTogetherAndEqualTokensOnce) {
  const auto made = encode({"", "bird", "a bird", "fish", "cat", "abird", " ", "dog"});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(encoder_.batches, ElementsAre(1, 2, 2, 1)) << "null; 4, 5 and 6 tokens";
  EXPECT_THAT(read_back(made->captions, 8),
              ElementsAre(".", "bird.", "abird.", "fish.", "cat.", "abird.", ".", "dog."));
  EXPECT_EQ(made->captions.distinct(), 5U);
  EXPECT_EQ(made->captions.uncaptioned(), 2U);
  EXPECT_EQ(made->captions.longest(), 6U);
  EXPECT_EQ(made->cut, 0U);
}

TEST_F(EncodeCaptions, ALongCaptionIsCutAndEndsAsOthersDo) {
  const auto made = encode({"", "abcdefgh", "abcdefghi", "abcdefghij", "abcdefghzz"}, 9);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(read_back(made->captions, 5),
              ElementsAre(".", "abcdefgh.", "abcdefgh.", "abcdefgh.", "abcdefgh."));
  EXPECT_EQ(made->cut, 3U);
  EXPECT_EQ(made->captions.distinct(), 1U);
}

std::vector<std::string> many() {
  std::vector<std::string> texts{""};
  for (int i = 0; i < 900; ++i) {
    std::string word(1 + static_cast<std::size_t>(i % 9), 'a');
    for (int rest = i, at = 0; rest > 0 && at < static_cast<int>(word.size()); rest /= 26, ++at)
      word[static_cast<std::size_t>(at)] = static_cast<char>('a' + rest % 26);
    texts.push_back(word);
  }
  return texts;
}

TEST_F(EncodeCaptions, ASecondAttemptEncodesNothingAgainAndATornFileGoesOn) {
  const std::vector<std::string> texts = many();
  const auto first = encode(texts);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->resumed, 0U);
  EXPECT_LE(*std::ranges::max_element(encoder_.batches), 1024U / 2);
  const std::vector<std::string> expected = read_back(first->captions, 901);
  const std::string bytes = read_file(folder_.path("kept"));
  const auto again = encode(texts);
  EXPECT_THAT(encoder_.batches, ElementsAre());
  EXPECT_EQ(again->resumed, 1 + again->captions.distinct());
  for (std::size_t end = 0; end < bytes.size(); end += 311) {
    folder_.write("kept", bytes.substr(0, end));
    const auto more = encode(texts);
    ASSERT_TRUE(more);
    ASSERT_EQ(read_back(more->captions, 901), expected) << end;
    ASSERT_EQ(read_file(folder_.path("kept")), bytes) << end;
  }
  EXPECT_TRUE(encode(texts, 10, "another encoder"));
  EXPECT_GT(encoder_.batches.size(), 5U);
}

TEST_F(EncodeCaptions, WhatSixteenBitsDoNotHoldNamesTheCaption) {
  encoder_.beyond = 'q';
  for (const float value : {7e4F, -1e9F, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    encoder_.value = value;
    const auto made = encode({"", "bird", "a q\nb", "fish", "two "});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(made.error().message, HasSubstr("the caption \"a q b\": expected finite numbers"));
  }
  encoder_.value = 65504;
  EXPECT_TRUE(encode({"", "bird", "a q\nb", "fish", "two "}));
}

TEST(EncodePrompts, CleansAndCutsThemAsCaptions) {
  Letters encoder;
  const auto prompts = encode_prompts({" A B", "abcdef"}, 4, letters, encoder);
  ASSERT_TRUE(prompts) << prompts.error().message;
  const auto first_of_each = [](const std::vector<std::uint16_t>& tokens) {
    std::vector<float> ids;
    for (std::size_t i = 0; i < tokens.size(); i += 2) ids.push_back(from_half(tokens[i]));
    return ids;
  };
  EXPECT_THAT(first_of_each(prompts->null), ElementsAre(kEnd));
  ASSERT_EQ(prompts->tokens.size(), 2U);
  EXPECT_THAT(first_of_each(prompts->tokens[0]), ElementsAre('a', 'b', kEnd));
  EXPECT_THAT(first_of_each(prompts->tokens[1]), ElementsAre('a', 'b', 'c', kEnd));
  EXPECT_EQ(prompts->of(3), prompts->of(1)) << "in turn";
  encoder.beyond = 'b';
  const auto refused = encode_prompts({"ab"}, 4, letters, encoder);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the caption \"ab\": expected finite numbers"));
}

}  // namespace
}  // namespace skerry::diffusion
