// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/training_set.h"

#include <cstring>
#include <set>

#include "diffusion/testing/testing.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

TEST(TrainingSet, JoinsItsShards) {
  const TempFolder folder;
  const ModelSpec model = tiny_model();
  const auto first = write_shard(folder / "a", model, 5);
  const auto second = write_shard(folder / "b", model, 7);
  const auto set = TrainingSet::open({first, second}, model);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->size(), 12U);
  const auto alone = TrainingSet::open({second}, model);
  ASSERT_TRUE(alone);
  for (std::uint64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(set->label(5 + i), alone->label(i));
    EXPECT_TRUE(std::equal(set->image(5 + i), set->image(5 + i) + model.pixels(), alone->image(i)));
  }
}

TEST(TrainingSet, ReadsPixelsInTheModelsRangeAndLatentsAsTheyAre) {
  const TempFolder folder;
  ModelSpec model = tiny_model();
  const auto images = TrainingSet::open({write_shard(folder / "images", model, 5)}, model).value();
  EXPECT_FALSE(images.holds_latents());
  std::vector<float> found(model.pixels());
  images.read(4, found);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], static_cast<float>(images.image(4)[i]) / 127.5F - 1.0F);

  model.channels = 4;
  const std::string path = write_latents(folder / "latents", model, 5);
  const auto latents = TrainingSet::open({path}, model).value();
  EXPECT_TRUE(latents.holds_latents());
  const std::string alike = write_latents(folder / "alike", tiny_model(), 5);
  ASSERT_TRUE(TrainingSet::open({alike}, tiny_model()));
  const auto mixed = TrainingSet::open({folder / "images", alike}, tiny_model());
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("latents beside images"), std::string::npos)
      << mixed.error().message;
  const auto file = storage::Safetensors::open(path).value();
  const auto halves = file.tensor("latents").value().data;
  found.resize(model.pixels());
  for (std::uint64_t n = 0; n < 5; ++n) {
    latents.read(n, found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, halves.data() + 2 * (n * found.size() + i), 2);
      EXPECT_EQ(found[i], from_half(half));
    }
  }
}

TEST(TrainingSet, RefusesLatentsThatAreNoHalves) {
  const TempFolder folder;
  const std::string bytes(4 * 64, '\0'), label(4, '\0');
  const std::vector<storage::TensorView> tensors{
      {"latents", storage::DType::kF32, {1, 1, 8, 8}, bytes},
      {"labels", storage::DType::kI32, {1}, label}};
  ASSERT_TRUE(storage::write_safetensors(folder / "floats", tensors, {}));
  const auto set = TrainingSet::open({folder / "floats"}, tiny_model());
  ASSERT_FALSE(set);
  EXPECT_NE(set.error().message.find("latents must be F16 [n,1,8,8]"), std::string::npos)
      << set.error().message;
}

TEST(TrainingSet, RefusesShardsOfAnotherShapeByName) {
  const TempFolder folder;
  const auto shard = write_shard(folder / "other", tiny_model(), 5);
  ModelSpec larger = tiny_model();
  larger.image_size = 16;
  const auto set = TrainingSet::open({shard}, larger);
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, ErrorCode::kInvalid);
  EXPECT_NE(set.error().message.find("other"), std::string::npos);
}

TEST(TrainingSet, RefusesLabelsThatTheModelDoesNotKnow) {
  const TempFolder folder;
  const auto shard = write_shard(folder / "a", tiny_model(), 5);
  ModelSpec fewer = tiny_model();
  fewer.classes = 2;
  EXPECT_FALSE(TrainingSet::open({shard}, fewer));
}

TEST(TrainingSet, RefusesToTrainOnNothing) { EXPECT_FALSE(TrainingSet::open({}, tiny_model())); }

TEST(SampleOrder, EveryPassSeesEverySampleOnce) {
  SampleOrder order(tiny_training(), 23);
  std::vector<std::uint64_t> first;
  for (int pass = 0; pass < 3; ++pass) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 23; ++i)
      seen.insert(order.at(static_cast<std::uint64_t>(pass) * 23 + i));
    EXPECT_EQ(seen.size(), 23U);
    EXPECT_EQ(*seen.rbegin(), 22U);
  }
}

TEST(SampleOrder, IsAFunctionOfPositionNotOfHistory) {
  SampleOrder forward(tiny_training(), 23), backward(tiny_training(), 23);
  std::vector<std::uint64_t> one(60), two(60);
  for (std::size_t i = 0; i < 60; ++i) one[i] = forward.at(i);
  for (std::size_t i = 60; i-- > 0;) two[i] = backward.at(i);
  EXPECT_EQ(one, two);
}

TEST(SampleOrder, DependsOnPassExpertAndAttempt) {
  const auto first = [](const TrainSpec& train, std::uint64_t begin) {
    SampleOrder order(train, 23);
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < 23; ++i) numbers.push_back(order.at(begin + i));
    return numbers;
  };
  TrainSpec train = tiny_training();
  const auto reference = first(train, 0);
  EXPECT_NE(first(train, 23), reference);
  ++train.expert;
  EXPECT_NE(first(train, 0), reference);
  train = tiny_training();
  ++train.attempt;
  EXPECT_NE(first(train, 0), reference);
}

}  // namespace
}  // namespace skerry::diffusion
