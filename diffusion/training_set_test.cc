#include "diffusion/training_set.h"

#include <set>

#include "diffusion/testing.h"

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
    for (std::uint64_t i = 0; i < 23; ++i) seen.insert(order.at(static_cast<std::uint64_t>(pass) * 23 + i));
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
