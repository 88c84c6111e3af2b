// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/lean.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "diffusion/runtime/device.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train_state.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

constexpr pointwise::RoundingKey kKey{0x9ABCDEF1, 0x12345678};
Ranks ranks(1);

at::Tensor rounded(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                   bool by_operators) {
  LeanScratch scratch(torch::kCPU, exact.numel(), by_operators);
  const at::Tensor out = at::empty(exact.sizes(), exact.options().dtype(at::kBFloat16));
  round_at_random(exact, key, place, scratch, out);
  return out;
}

at::Tensor bits_of(const at::Tensor& halves) { return halves.view(at::kShort); }

// Of every size that fp32 has, and what is no number.
at::Tensor many() {
  at::manual_seed(3);
  const at::Tensor bits = at::randint(std::numeric_limits<std::int32_t>::min(),
                                      std::numeric_limits<std::int32_t>::max(), {50'000}, at::kInt);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor special = torch::tensor({0.F, -0.F, kInfinity, -kInfinity, NAN, 3e38F, 1e-45F});
  return at::cat({bits.view(at::kFloat), special});
}

TEST(Rounding, OperatorsRoundToTheSameBits) {
  const at::Tensor exact = many();
  for (const std::int64_t place :
       {std::int64_t{0}, std::int64_t{1} << 22, (std::int64_t{1} << 32) - 7}) {
    EXPECT_TRUE(at::equal(bits_of(rounded(exact, kKey, place, false)),
                          bits_of(rounded(exact, kKey, place, true))))
        << "from place " << place;
  }
}

TEST(Rounding, IsToOneOfTheNeighboursAndNoNumberIsLostForAnother) {
  const at::Tensor exact = many(), found = rounded(exact, kKey, 0, false);
  EXPECT_TRUE(at::equal(found.isnan(), exact.isnan()));
  EXPECT_TRUE(at::equal(found.isinf(), exact.isinf() | (found.isinf() & (exact.abs() > 3.38e38))));
  const at::Tensor below = bits_of(found).to(at::kInt).bitwise_and(0xFFFF) -
                           exact.view(at::kInt).bitwise_right_shift(16).bitwise_and(0xFFFF);
  EXPECT_TRUE((exact.isnan() | (below == 0) | (below == 1)).all().item<bool>());
  const at::Tensor halves = exact.to(at::kBFloat16).nan_to_num(1);
  EXPECT_TRUE(at::equal(rounded(halves.to(at::kFloat), kKey, 0, false), halves))
      << "one that is bf16 stays";
}

TEST(Rounding, DependsOnThePlaceAndNotOnWhatElseIsRounded) {
  const at::Tensor exact = at::full({3000}, 1 + 1.0 / 300);
  const at::Tensor whole = rounded(exact, kKey, 0, false);
  const at::Tensor parts = at::cat({rounded(exact.narrow(0, 0, 1111), kKey, 0, false),
                                    rounded(exact.narrow(0, 1111, 1889), kKey, 1111, false)});
  EXPECT_TRUE(at::equal(whole, parts));
  EXPECT_FALSE(at::equal(whole, rounded(exact, kKey, 1, false)));
  EXPECT_FALSE(at::equal(whole, rounded(exact, {kKey.first + 1, kKey.second}, 0, false)));
  EXPECT_FALSE(at::equal(whole, rounded(exact, {kKey.first, kKey.second + 1}, 0, false)));
}

TEST(Rounding, HasTheNumberAsItsMean) {
  constexpr std::int64_t kCount = 1 << 20;
  for (const double share : {0.001, 0.3, 0.5, 0.9}) {  // of the way from 1 to the next bf16
    const double unit = std::ldexp(1, -7);
    const at::Tensor up = rounded(at::full({kCount}, 1 + share * unit), kKey, 0, false) > 1;
    const double deviation = std::sqrt(share * (1 - share) / kCount);
    EXPECT_NEAR(up.to(at::kDouble).mean().item<double>(), share, 5 * deviation);
    // Neighbours, and the same place under the next key, are drawn apart.
    const at::Tensor other = rounded(at::full({kCount}, 1 + share * unit),
                                     {kKey.first ^ 1, kKey.second ^ 1}, 0, false) > 1;
    const double both = (up & other).to(at::kDouble).mean().item<double>();
    const double next = (up.narrow(0, 0, kCount - 1) & up.narrow(0, 1, kCount - 1))
                            .to(at::kDouble)
                            .mean()
                            .item<double>();
    EXPECT_NEAR(both, share * share, 5 * std::sqrt(share * share / kCount) + 1e-5);
    EXPECT_NEAR(next, share * share, 5 * std::sqrt(share * share / kCount) + 1e-5);
  }
}

TrainSpec lean(TrainSpec train) {
  train.state = StateForm::kLean;
  return train;
}

// Rounded to the nearest, neither would have moved from where its steps fell
// below half a unit in the last place.
TEST(LeanUpdate, MeanAndMomentsGetToWhereTheyAreHeaded) {
  ASSERT_TRUE(open_device(-1, 1));
  constexpr int kSteps = 3000;
  constexpr double kGradient = 0.01;
  TrainSpec train = lean(tiny_training());
  train.ema = 0.999;
  train.clip = 0;
  train.learning_rate = 1e-9;  // the target stands still
  TrainState state = state_of({at::full({50, 40}, 1.0)}, train, {torch::kCPU});
  state.step = 1'000'000;
  state.ema[0].fill_(0.5);
  for (int i = 0; i < kSteps; ++i) {
    std::vector<at::Tensor> gradients{at::full({50, 40}, kGradient)};
    apply_gradients(state, gradients, train, ranks);
  }
  const double left = std::pow(0.999, kSteps);  // of the way, for the mean and for v alike
  const auto mean = [](const at::Tensor& tensor) {
    return tensor.to(at::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(mean(state.ema[0]), 1 - 0.5 * left, 2e-3);
  EXPECT_NEAR(mean(state.v[0]) / (kGradient * kGradient), 1 - left, 5e-3);
  EXPECT_NEAR(mean(state.m[0]) / kGradient, 1, 5e-3);
  EXPECT_LT(state.ema[0].to(at::kFloat).std().item<double>(), 0.01) << "and stay together";
}

TEST(LeanUpdate, IsDrawnAnewAtEachStepForEachTensorOfEachTraining) {
  const auto moments = [](const TrainSpec& train, std::uint64_t step) {
    TrainState state = state_of({at::ones({1000}), at::ones({1000})}, train, {torch::kCPU});
    state.step = step;
    std::vector<at::Tensor> gradients{at::full({1000}, 0.7), at::full({1000}, 0.7)};
    apply_gradients(state, gradients, train, ranks);
    return at::stack({state.m[0], state.m[1]});
  };
  const TrainSpec train = lean(tiny_training());
  const at::Tensor one = moments(train, 5);
  EXPECT_TRUE(at::equal(one, moments(train, 5)));
  EXPECT_FALSE(at::equal(one[0], one[1]));
  EXPECT_FALSE(at::equal(one, moments(train, 6)));
  TrainSpec other = train;
  ++other.seed;
  EXPECT_FALSE(at::equal(one, moments(other, 5)));
  other = train;
  ++other.expert;
  EXPECT_FALSE(at::equal(one, moments(other, 5)));
  other = train;
  ++other.attempt;
  EXPECT_FALSE(at::equal(one, moments(other, 5)));
}

// More numbers than a slice has.
TEST(LeanUpdate, OfALargeTensorIsThatOfTheFullFormBeforeItIsRounded) {
  const TrainSpec train = tiny_training();
  at::manual_seed(4);
  const at::Tensor weights = at::randn({700, 500}), gradient = at::randn({700, 500});
  TrainState full = state_of({weights.clone()}, train, {torch::kCPU});
  TrainState small = state_of({weights.clone()}, lean(train), {torch::kCPU});
  ASSERT_LT(small.slices[0].lean->slice, weights.numel());
  for (const auto& [state, spec] : {std::pair{&full, train}, std::pair{&small, lean(train)}}) {
    std::vector<at::Tensor> gradients{gradient.clone()};
    apply_gradients(*state, gradients, spec, ranks);
  }
  EXPECT_TRUE(at::equal(full.raw[0], small.raw[0]));
  // The mean is of weights that were rounded before, and may be near zero where
  // they are not.
  for (const auto& [exact, kept, near] :
       {std::tuple{full.m, small.m, 0.0}, {full.v, small.v, 0.0}, {full.ema, small.ema, 0.1}}) {
    const at::Tensor off = (kept[0].to(at::kFloat) - exact[0]).abs() / (exact[0].abs() + near);
    EXPECT_LT(off.max().item<double>(), 1.1 * 0x1p-7);
    EXPECT_GT(off.max().item<double>(), 0x1p-9) << "not rounded";
  }
}

}  // namespace
}  // namespace skerry::diffusion
