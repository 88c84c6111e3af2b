// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/prompt_shares.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "base/random.h"
#include "base/temp_folder.h"
#include "base/text.h"
#include "diffusion/data/caption_centroids.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kDim = 64;
constexpr std::uint32_t kPartitions = 8;

// The first 12 are trained on.
const std::vector<std::string> kTemplates{"a photo of a *",
                                          "*",
                                          "the * on a white background",
                                          "a grey picture of one * seen from the front",
                                          "product shot * studio light",
                                          "an old * for sale",
                                          "low resolution image of a *",
                                          "a small * in the middle",
                                          "this is a *",
                                          "an image of the *",
                                          "one * and nothing else",
                                          "a drawing of a *",
                                          "a close-up of a *",
                                          "my favourite *",
                                          "picture of a * taken indoors",
                                          "look at this *"};
constexpr std::size_t kTrained = 12;
const std::vector<std::string> kNouns{"airplane", "automobile", "bird",  "cat",  "deer",
                                      "dog",      "frog",       "horse", "ship", "truck"};

double uniform(std::uint32_t i, std::uint32_t j) {
  return Stream({.seed = 5, .step = i, .sample = j}).uniform();
}

// A frozen random encoder: a vector for each word.
std::vector<std::uint16_t> encoded(const std::string& caption) {
  static std::map<std::string, std::uint32_t> words;
  std::vector<std::uint16_t> tokens;
  std::istringstream in(caption);
  for (std::string word; in >> word;) {
    const auto number = static_cast<std::uint32_t>(words.size());
    const std::uint32_t of = words.try_emplace(word, number).first->second;
    Stream stream({.seed = 6, .sample = of});
    for (std::size_t d = 0; d < kDim; ++d)
      tokens.push_back(to_half(static_cast<float>(stream.normal())));
  }
  return tokens;
}

std::string worded(std::size_t noun, std::size_t form) {
  std::string words = kTemplates[form];
  return words.replace(words.find('*'), 1, kNouns[noun]);
}

std::vector<float> pooled_prompt(std::size_t noun, std::size_t form) {
  const std::vector<std::uint16_t> tokens = encoded(worded(noun, form));
  return pooled(storage::bytes_of_values<std::uint16_t>(tokens), kDim);
}

double total_variation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += std::abs(a[k] - b[k]) / 2;
  return sum;
}

// 6,000 images of ten nouns, most of each noun in one or two partitions.
class PromptSharesTest : public ::testing::Test {
 protected:
  PromptSharesTest() {
    auto builder = Captions::Builder::create(kDim, folder_.path()).value();
    EXPECT_TRUE(builder.add(std::vector<std::uint16_t>(kDim)));  // the null caption
    std::vector<std::uint32_t> of;
    for (std::uint32_t image = 0; image < 6000; ++image) {
      const auto noun = static_cast<std::size_t>(uniform(1, image) * 10);
      const auto form = static_cast<std::size_t>(uniform(2, image) * kTrained);
      const double share = uniform(3, image);
      const std::size_t partition = (share < 0.6   ? noun
                                     : share < 0.9 ? noun / 2
                                                   : static_cast<std::size_t>(share * 80)) %
                                    kPartitions;
      of.push_back(builder.add(encoded(worded(noun, form))).value());
      if (image % 10 == 0) {
        held_out_.push_back(image);
        partitions_.push_back(static_cast<std::int32_t>(partition));
      } else {
        rows_[partition].push_back(image);
        table_[noun][partition] += 1;
        prior_[partition] += 1;
      }
    }
    captions_ = builder.finish(of).value();
    for (auto& row : table_) normalise(row);
    normalise(prior_);
  }
  static void normalise(std::vector<double>& row) {
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& share : row) share /= sum;
  }
  static std::vector<std::int32_t> all() {
    std::vector<std::int32_t> indices(kPartitions);
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }

  TempFolder folder_;
  std::optional<Captions> captions_;
  std::vector<std::vector<std::uint32_t>> rows_{kPartitions};
  std::vector<std::uint32_t> held_out_;
  std::vector<std::int32_t> partitions_;
  std::vector<std::vector<double>> table_ =
      std::vector(kNouns.size(), std::vector<double>(kPartitions));
  std::vector<double> prior_ = std::vector<double>(kPartitions);
};

TEST_F(PromptSharesTest, APromptInNewWordsHasTheSharesOfItsNoun) {
  const auto statistics = caption_statistics(*captions_, rows_, held_out_, partitions_);
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->size(), kTrained * kNouns.size());
  const PromptShares shares(*statistics, all());
  double seen = 0, unseen = 0, prior = 0;
  for (std::size_t noun = 0; noun < kNouns.size(); ++noun) {
    prior += total_variation(prior_, table_[noun]) / 10;
    for (std::size_t form = 0; form < kTemplates.size(); ++form) {
      const double apart = total_variation(shares.of(pooled_prompt(noun, form)), table_[noun]);
      form < kTrained ? seen += apart / (10 * kTrained) : unseen += apart / 40;
    }
  }
  RecordProperty("seen", text(seen));
  RecordProperty("unseen", text(unseen));
  RecordProperty("prior", text(prior));
  EXPECT_GT(prior, 0.5);
  EXPECT_LT(seen, 0.15);
  EXPECT_LT(unseen, 0.15);
}

TEST_F(PromptSharesTest, RemovedExpertsDropOut) {
  const auto statistics = caption_statistics(*captions_, rows_, held_out_, partitions_);
  ASSERT_TRUE(statistics);
  const std::vector<double> whole = PromptShares(*statistics, all()).of(pooled_prompt(3, 0));
  const std::vector<double> part = PromptShares(*statistics, {1, 4, 6}).of(pooled_prompt(3, 0));
  ASSERT_EQ(part.size(), 3U);
  EXPECT_NEAR(part[0] + part[1] + part[2], 1, 1e-9);
  EXPECT_GT(whole[3], 0.5);
  EXPECT_LT(whole[1], 0.5);
  EXPECT_GT(part[0], 0.9);  // the cat's second one, as its first is gone
}

TEST_F(PromptSharesTest, TheRouterFileKeepsThem) {
  const auto statistics = caption_statistics(*captions_, rows_, held_out_, partitions_);
  ASSERT_TRUE(statistics);
  const std::string path = folder_ / "router.safetensors";
  ASSERT_TRUE(storage::write_safetensors(path, tensors_of(*statistics),
                                         {{kCaptionSharpness, text(statistics->sharpness)}}));
  const auto file = storage::Safetensors::open(path).value();
  const auto read = caption_statistics_in(file, path);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(*read);
  EXPECT_EQ((*read)->centroids, statistics->centroids);
  EXPECT_EQ((*read)->counts, statistics->counts);
  EXPECT_NEAR((*read)->sharpness, statistics->sharpness, 1e-3);
  ASSERT_TRUE(storage::write_safetensors(path, tensors_of(*statistics), {}));
  const auto blunt = caption_statistics_in(storage::Safetensors::open(path).value(), path);
  ASSERT_FALSE(blunt);
  EXPECT_THAT(blunt.error().message, HasSubstr("caption_sharpness in its metadata"));
}

TEST(CaptionCentroids, GatherWhatIsMoreThanTheirNumber) {
  const TempFolder folder;
  auto builder = Captions::Builder::create(8, folder.path()).value();
  ASSERT_TRUE(builder.add(std::vector<std::uint16_t>(8)));
  std::vector<std::uint32_t> of;
  std::vector<std::vector<std::uint32_t>> rows(2);
  for (std::uint32_t image = 0; image < 5000; ++image) {
    Stream stream({.seed = 7, .sample = image});
    std::vector<std::uint16_t> token;
    // Two groups, each of a partition.
    for (int d = 0; d < 8; ++d)
      token.push_back(
          to_half(static_cast<float>(stream.normal() + (d == 0 ? (image % 2 ? 9 : -9) : 0))));
    of.push_back(image % 50 == 0 ? 0 : builder.add(token).value());
    rows[image % 2].push_back(image);
  }
  const Captions captions = builder.finish(of).value();
  const auto statistics = caption_statistics(captions, rows, {}, {});
  ASSERT_TRUE(statistics);
  EXPECT_EQ(statistics->size(), kMostCaptionCentroids);
  EXPECT_EQ(std::accumulate(statistics->counts.begin(), statistics->counts.end(), 0), 4900);
  const PromptShares shares(*statistics, {0, 1});
  const std::vector<float> left{-1, 0, 0, 0, 0, 0, 0, 0}, right{1, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_GT(shares.of(left, 20)[0], 0.95);
  EXPECT_GT(shares.of(right, 20)[1], 0.95);
}

}  // namespace
}  // namespace skerry::diffusion
