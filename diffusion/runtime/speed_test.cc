// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/speed.h"

#include <chrono>
#include <numeric>

#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(PhaseClock, SeesEachPhaseOfItsStepsAndNothingElse) {
  const TempFolder folder;
  auto trainer = Trainer::create(tiny_model(), tiny_training(),
                                 {write_shard(folder / "shard", tiny_model(), 20)});
  ASSERT_TRUE(trainer);
  ASSERT_TRUE(trainer->step());
  const double begin = seconds_now();
  int waits = 0;
  const PhaseClock clock([&] { ++waits; });
  for (const double seconds : clock.seconds()) EXPECT_EQ(seconds, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(trainer->step());
  EXPECT_EQ(waits, 3 * 2 * 4);  // for each end of each phase
  const auto seconds = clock.seconds();
  for (std::size_t i = 0; i < seconds.size(); ++i) EXPECT_GT(seconds[i], 0) << kPhases[i];
  EXPECT_LE(std::accumulate(seconds.begin(), seconds.end(), 0.0), seconds_now() - begin);
}

TEST(PhaseClock, CountsNoMoreOnceItIsGone) {
  const TempFolder folder;
  auto trainer = Trainer::create(tiny_model(), tiny_training(),
                                 {write_shard(folder / "shard", tiny_model(), 20)});
  ASSERT_TRUE(trainer);
  { const PhaseClock clock; }
  EXPECT_TRUE(trainer->step());  // whose phases nobody listens to
}

TEST(CpuProduct, IsMeasured) {
  TrainSpec train = tiny_training();
  EXPECT_GT(measure_cpu_product(train).value(), 0);
}

}  // namespace
}  // namespace skerry::diffusion
