#include "diffusion/speed.h"

#include <chrono>
#include <numeric>

#include "diffusion/testing.h"
#include "diffusion/train.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Peebles & Xie, table 1 and appendix: Gflops at latents of 32² with 4 channels, counting a multiplication and an addition
// as one.
TEST(ForwardFlops, AreWhatThePaperOfDitCounts) {
  const std::pair<const char*, double> expected[] = {
      {"S/2", 6.06}, {"B/2", 23.01}, {"L/2", 80.71}, {"XL/2", 118.64}, {"XL/4", 29.05}};
  for (const auto& [name, gflops] : expected) {
    ModelSpec model = model_preset(name).value();
    model.image_size = 32;
    model.channels = 4;
    EXPECT_NEAR(forward_flops(model) / 2e9, gflops, 0.01 * gflops) << name;
  }
}

TEST(PublishedPeak, KnowsCardsByTheNamesOfTheirDriver) {
  EXPECT_EQ(published_peak("NVIDIA H200", "bf16"), 989.4e12);
  EXPECT_EQ(published_peak("NVIDIA H100 80GB HBM3", "bf16"), 989.4e12);
  EXPECT_EQ(published_peak("NVIDIA H100 PCIe", "bf16"), 756e12);
  EXPECT_EQ(published_peak("NVIDIA L40S", "fp32"), 91.6e12);
  EXPECT_EQ(published_peak("NVIDIA L4", "fp32"), 30.3e12);
  EXPECT_EQ(published_peak("cpu", "fp32"), std::nullopt);
}

TEST(PhaseClock, SeesEachPhaseOfItsStepsAndNothingElse) {
  const TempFolder folder;
  auto trainer =
      Trainer::create(tiny_model(), tiny_training(), {write_shard(folder / "shard", tiny_model(), 20)});
  ASSERT_TRUE(trainer);
  ASSERT_TRUE(trainer->step());
  const double begin = seconds_now();
  const PhaseClock clock(/*on_card=*/false);
  for (const double seconds : clock.seconds()) EXPECT_EQ(seconds, 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(trainer->step());
  const auto seconds = clock.seconds();
  for (std::size_t i = 0; i < seconds.size(); ++i) EXPECT_GT(seconds[i], 0) << kPhases[i];
  EXPECT_LE(std::accumulate(seconds.begin(), seconds.end(), 0.0), seconds_now() - begin);
}

TEST(PhaseClock, CountsNoMoreOnceItIsGone) {
  const TempFolder folder;
  auto trainer =
      Trainer::create(tiny_model(), tiny_training(), {write_shard(folder / "shard", tiny_model(), 20)});
  ASSERT_TRUE(trainer);
  { const PhaseClock clock(/*on_card=*/false); }
  EXPECT_TRUE(trainer->step());  // whose phases nobody listens to
}

TEST(CpuProduct, IsMeasured) {
  TrainSpec train = tiny_training();
  EXPECT_GT(measure_cpu_product(train).value(), 0);
}

}  // namespace
}  // namespace skerry::diffusion
