// SPDX-License-Identifier: Apache-2.0
// Training and sampling on the pretended card: what they compute, what they
// make it do, and what goes wrong there and not on a CPU.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "diffusion/data/ingest.h"
#include "diffusion/kernels/kernels.h"
#include "diffusion/model/dit.h"
#include "diffusion/router/velocity.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/runtime/device.h"
#include "diffusion/sample/sample.h"
#include "diffusion/testing/near_reference.h"
#include "diffusion/testing/pretended_card.h"
#include "diffusion/testing/test_ensemble.h"
#include "diffusion/testing/test_images.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"
#include "diffusion/train/train_state.h"
#include "model/shapes.h"

namespace skerry::diffusion {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// What was measured on 2026-11-25 with LibTorch 2.11: these may only fall.
constexpr long kOperatorsOfABlock = 86;  // forward and backward, by the reference
constexpr long kFastOperatorsOfABlock = 36;
constexpr long kFastBf16OperatorsOfABlock = 42;
constexpr long kOperatorsBeside = 57;  // of the rest of the model
constexpr long kWaitsOfAStep = 0;      // for work that was just queued
constexpr long kCopiesOfAStep = 5;     // the fifth is loss and norm, to the host

class Pretend : public ::testing::Test {
 protected:
  Pretend() { PretendedCard::device(); }
  ~Pretend() override { PretendedCard::set_limit(std::size_t{1} << 30); }

  static TrainSpec on_card() {
    TrainSpec train = tiny_training();
    train.device = 0;
    return train;
  }
  Trainer fresh(const TrainSpec& train, const ModelSpec& model = tiny_model()) {
    auto made = Trainer::create(model, train, shards_);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  static StepMetrics run(Trainer& trainer, int steps) {
    StepMetrics last;
    for (int i = 0; i < steps; ++i) {
      const auto step = trainer.step();
      EXPECT_TRUE(step) << (step ? "" : step.error().message);
      if (step) last = *step;
    }
    return last;
  }
  static storage::Safetensors snapshot(const Trainer& trainer) {
    const int memory = ::memfd_create("snapshot", MFD_CLOEXEC);
    const auto bytes = trainer.write_snapshot(memory);
    EXPECT_TRUE(bytes) << (bytes ? "" : bytes.error().message);
    auto mapped = storage::Safetensors::map(memory, bytes.value_or(0));
    EXPECT_TRUE(mapped) << (mapped ? "" : mapped.error().message);
    ::close(memory);
    return *mapped;
  }
  // Operators of a forward and a backward pass.
  static long of_both_passes(std::uint32_t depth, const std::shared_ptr<const Kernels>& kernels,
                             bool bf16) {
    ModelSpec model = tiny_model();
    model.depth = depth;
    const torch::Device card = PretendedCard::device();
    const std::vector<at::Tensor> raw = laid_out(initial_weights(model, 1, 0, 0), card, at::kFloat);
    const Dit dit(model, replica_weights(raw, model, card, bf16), card, kernels);
    const at::Tensor x = at::ones({4, 1, 8, 8}, at::TensorOptions(card)),
                     t = at::ones({4}, x.options()),
                     labels = at::ones({4}, x.options().dtype(at::kLong));
    PretendedCard::forget();
    const at::Tensor out = [&] {
      const Autocast autocast(card, bf16);
      return dit.forward(x, t, {.labels = labels});
    }();
    (void)torch::autograd::grad({out}, dit.weights(), {out});
    return PretendedCard::counts().operators;
  }
  struct Operators {
    long block, rest;
  };
  static Operators operators_of(const std::shared_ptr<const Kernels>& kernels, bool bf16) {
    const long shallow = of_both_passes(2, kernels, bf16);
    const long block = (of_both_passes(4, kernels, bf16) - shallow) / 2;
    return {block, shallow - 2 * block};
  }

  TempFolder folder_;
  TemporaryFolder images_;
  std::vector<std::string> shards_{write_shard(folder_ / "a", tiny_model(), 33)};
};

TEST_F(Pretend, ItsMemoryIsForOperatorsOnly) {
  const at::Tensor there = at::ones({8}, at::TensorOptions(PretendedCard::device()));
  EXPECT_EQ((there + there).sum().item<float>(), 16);
  EXPECT_EXIT(std::printf("%f", static_cast<double>(*static_cast<float*>(there.data_ptr()))),
              ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(Pretend, AQueuedCopyIsLate) {
  const torch::Device card = PretendedCard::device();
  const at::Tensor pinned = at::ones({8}, at::TensorOptions().pinned_memory(true));
  const at::Tensor there = pinned.to(card, /*non_blocking=*/true);
  pinned.fill_(7);
  EXPECT_EQ(there.sum().item<float>(), 56);
  const at::Tensor here = at::zeros({8});
  here.copy_(there, /*non_blocking=*/true);
  EXPECT_TRUE(here.isnan().all().item<bool>());
  wait_for(PretendedCard::device(1));
  EXPECT_TRUE(here.isnan().all().item<bool>());
  there.fill_(9);  // which comes after the copy
  EXPECT_TRUE(here.isnan().all().item<bool>());
  wait_for(card);
  EXPECT_EQ(here.sum().item<float>(), 56);
}

// Only a wait of the host brings what was copied to it.
TEST_F(Pretend, AnOperatorIsNoWaitForTheHost) {
  const torch::Device card = PretendedCard::device();
  const at::Tensor there = at::full({8}, 3.0F, at::TensorOptions(card));
  const at::Tensor here = at::zeros({8});
  here.copy_(there, /*non_blocking=*/true);
  there.add_(1);
  EXPECT_TRUE(here.isnan().all().item<bool>());
  wait_for(card);
  EXPECT_EQ(here.sum().item<float>(), 24) << "as it was when the copy was queued";
}

TEST_F(Pretend, OnlyEventsOrderStreams) {
  const torch::Device card = PretendedCard::device();
  const c10::impl::VirtualGuardImpl driver(card.type());
  const c10::Stream main = driver.getStream(card), side = driver.getStreamFromGlobalPool(card);
  const at::Tensor pinned = at::ones({8}, at::TensorOptions().pinned_memory(true));
  const auto copied_beside = [&] {
    const c10::StreamGuard beside(side);
    return pinned.to(card, /*non_blocking=*/true);
  };
  const at::Tensor early = copied_beside();
  EXPECT_TRUE((early + 1).isnan().all().item<bool>()) << "read before it was copied";
  const at::Tensor ordered = copied_beside();
  c10::Event copied(card.type());
  copied.record(side);
  EXPECT_FALSE(copied.query());
  copied.block(main);
  EXPECT_EQ((ordered + 1).sum().item<float>(), 16);
  EXPECT_EQ((early + 1).sum().item<float>(), 16);
  copied.synchronize();
  EXPECT_TRUE(copied.query());
}

TEST_F(Pretend, PinnedMemoryIsNotWrittenUnderACopy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const torch::Device card = PretendedCard::device();
  const at::Tensor pinned = at::ones({8}, at::TensorOptions().pinned_memory(true));
  EXPECT_DEATH(
      {
        const at::Tensor sum = pinned.to(card, /*non_blocking=*/true).sum();
        pinned.fill_(7);
        wait_for(card);
      },
      "pinned memory was written");
}

TEST_F(Pretend, TrainsAsTheCpuDoes) {
  for (const char* precision : {"fp32", "bf16"}) {
    TrainSpec train = on_card();
    train.precision = precision;
    Trainer there = fresh(train);
    EXPECT_EQ(there.device_name(), "cuda:0");
    train.device = -1;
    Trainer here = fresh(train);
    const bool is_exact = train.precision == "fp32";
    for (int i = 0; i < 6; ++i)
      EXPECT_NEAR(run(there, 1).loss, run(here, 1).loss, is_exact ? 1e-5 : 2e-2) << precision;
    EXPECT_EQ(there.non_finite().value(), std::nullopt);
  }
}

TEST_F(Pretend, AResumedTrainingEndsInTheSameBytes) {
  for (const StateForm form : {StateForm::kFull, StateForm::kLean}) {
    TrainSpec train = on_card();
    train.state = form;
    train.precision = "bf16";
    Trainer unbroken = fresh(train), first = fresh(train);
    run(unbroken, 6);
    run(first, 3);
    auto second = Trainer::resume(tiny_model(), train, shards_, snapshot(first));
    ASSERT_TRUE(second) << second.error().message;
    run(*second, 3);
    EXPECT_EQ(snapshot(*second).file(), snapshot(unbroken).file());
  }
}

// Forward and backward through every kernel of a card, by autocast too.
TEST_F(Pretend, APixartComputesAsOnTheCpu) {
  const torch::Device card = PretendedCard::device();
  const ModelSpec model = tiny_pixart();
  at::manual_seed(3);
  std::vector<at::Tensor> weights;
  for (const auto& parameter : parameter_shapes(model))
    weights.push_back(at::randn(parameter.shape) * 0.2);
  const auto x = at::randn({4, 1, 8, 12}), t = at::rand({4});
  const Condition condition = some_condition(model, 4);
  const auto gradients = [&](torch::Device on, const std::shared_ptr<const Kernels>& kernels,
                             bool bf16) {
    std::vector<at::Tensor> there = laid_out(weights, on, at::kFloat);
    for (at::Tensor& each : there) each = each.detach().set_requires_grad(true);
    const auto denoiser = make_denoiser(model, there, on, kernels);
    const auto out = [&] {
      const Autocast autocast(on, bf16);
      return denoiser->forward(
          x.to(on), t.to(on),
          {.captions = condition.captions.to(on), .mask = condition.mask.to(on)});
    }();
    std::vector<at::Tensor> found =
        torch::autograd::grad({out.to(at::kFloat).square().mean()}, denoiser->weights());
    found.push_back(out);
    for (at::Tensor& each : found) each = each.to(at::kCPU, at::kFloat);
    return found;
  };
  const auto expected = gradients(torch::kCPU, reference_kernels(), false);
  const auto fast = make_kernels(KernelChoice::kFast, card, model);
  const auto shapes = parameter_shapes(model);
  for (const auto& kernels : {reference_kernels(), fast}) {
    for (const bool bf16 : {false, true}) {
      const auto found = gradients(card, kernels, bf16);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const std::string name = i < shapes.size() ? shapes[i].name : "velocity";
        if (name.ends_with("to_k.bias")) continue;  // zero but for rounding
        EXPECT_LT((found[i] - expected[i]).norm().item<double>(),
                  (bf16 ? 0.06 : 1e-4) * expected[i].norm().item<double>())
            << name << ", kernels '" << kernels->fingerprint() << "', bf16 " << bf16;
      }
    }
  }
}

TEST_F(Pretend, TwoCardsGiveTheBitsOfOne) {
  TrainSpec one = on_card(), two = on_card();
  one.micro_batch = 3;
  two.cards = 2;
  Trainer alone = fresh(one), shared = fresh(two);
  run(alone, 4);
  run(shared, 4);
  EXPECT_EQ(snapshot(alone).file(), snapshot(shared).file());
}

TEST_F(Pretend, AFullCardTakesHalfAsManySamplesAtATime) {
  std::size_t peak = 0;
  // So many that the peak is in the model, not in the update.
  TrainSpec train = on_card();
  train.batch_size = 96;
  {
    Trainer roomy = fresh(train);
    PretendedCard::forget();
    run(roomy, 1);
    peak = PretendedCard::peak_bytes();
  }
  PretendedCard::set_limit(peak - 1024);
  Trainer crowded = fresh(train);
  run(crowded, 3);
  // Half of them fit only if nothing of the failed try is left.
  EXPECT_THAT(crowded.fingerprint(), HasSubstr("micro-batch 48"));
  train.micro_batch = 48;
  PretendedCard::set_limit(std::size_t{1} << 30);
  Trainer expected = fresh(train);
  run(expected, 3);
  EXPECT_EQ(snapshot(crowded).file(), snapshot(expected).file());
  PretendedCard::set_limit(PretendedCard::held_bytes());
  const auto refused = crowded.step();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
}

TEST_F(Pretend, AnEnsembleIsTrainedSampledAndMeasured) {
  const std::string dataset = folder_ / "dataset", ensemble = folder_ / "ensemble";
  write_image_folder(images_, "in", 120, 2, 8, 1);
  const auto ingested = ingest({.input = images_.path("in"), .output = dataset, .partitions = 2},
                               [](const Progress&) {});
  ASSERT_TRUE(ingested) << ingested.error().message;
  const ModelSpec model{.patch_size = 4, .width = 16, .depth = 1, .heads = 2};
  TrainSpec train{.steps = 5, .batch_size = 8, .learning_rate = 3e-3, .ema = 0.9};
  train.device = 0;
  const auto trained = train_ensemble(dataset, ensemble, model, train);
  ASSERT_TRUE(trained) << trained.error().message;
  const auto drawn = [&](int device) {
    SampleSpec spec;
    spec.count = 4;
    spec.steps = 4;
    spec.route = Route::kTop2;
    spec.device = device;
    spec.keep_values = true;
    const auto samples = sample_ensemble(ensemble, spec, nullptr);
    EXPECT_TRUE(samples) << (samples ? "" : samples.error().message);
    return samples ? samples->values : std::vector<float>{};
  };
  const std::vector<float> here = drawn(-1), there = drawn(0);
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(here[i], there[i], 1e-4) << i;
  const auto on_cpu = measure_velocity(ensemble, dataset, 4, -1);
  PretendedCard::forget();
  const auto measured = measure_velocity(ensemble, dataset, 4, 0);
  ASSERT_TRUE(on_cpu && measured) << measured.error().message;
  EXPECT_GT(PretendedCard::counts().operators, 100);
  for (std::size_t i = 0; i < measured->levels.size(); ++i)
    EXPECT_NEAR(measured->levels[i].full, on_cpu->levels[i].full, 1e-4);
}

// Metrics that are read a step late are those of their step.
TEST_F(Pretend, AStepInFlightKeepsItsMetrics) {
  for (const int device : {0, -1}) {
    TrainSpec train = on_card();
    train.device = device;
    Trainer waiting = fresh(train), ahead = fresh(train);
    std::vector<StepMetrics> found, expected;
    for (int i = 0; i < 4; ++i) {
      expected.push_back(run(waiting, 1));
      const auto before = ahead.advance();
      ASSERT_TRUE(before) << before.error().message;
      EXPECT_EQ(before->has_value(), i > 0);
      if (*before) found.push_back(**before);
    }
    found.push_back(ahead.settle().value().value());
    EXPECT_EQ(ahead.settle().value(), std::nullopt);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].step, i + 1);
      EXPECT_EQ(found[i].loss, expected[i].loss);
      EXPECT_EQ(found[i].gradient_norm, expected[i].gradient_norm);
      EXPECT_EQ(found[i].learning_rate, expected[i].learning_rate);
    }
  }
}

// The card's kernels, each launch of which is emulated.
TEST_F(Pretend, FastKernelsTrainAsOnTheCpu) {
  for (const char* precision : {"fp32", "bf16"}) {
    TrainSpec train = on_card();
    train.kernels = KernelChoice::kFast;
    train.precision = precision;
    Trainer there = fresh(train);
    EXPECT_THAT(there.fingerprint(), HasSubstr("fast"));
    PretendedCard::forget();
    train.device = -1;
    Trainer here = fresh(train);
    const bool is_exact = train.precision == "fp32";
    for (int i = 0; i < 3; ++i)
      EXPECT_NEAR(run(there, 1).loss, run(here, 1).loss, is_exact ? 1e-5 : 2e-2) << precision;
    EXPECT_GT(PretendedCard::counts().launches, 0);
  }
}

// Figures in CI: a commit that lowers one also lowers the constant.
TEST_F(Pretend, AStepKeepsACardNoBusierThanBefore) {
  const auto card_kernels =
      make_kernels(KernelChoice::kFast, PretendedCard::device(), tiny_model());
  const Operators reference = operators_of(reference_kernels(), /*bf16=*/false),
                  fast = operators_of(card_kernels, /*bf16=*/false),
                  fast_bf16 = operators_of(card_kernels, /*bf16=*/true);
  Trainer trainer = fresh(on_card());
  run(trainer, 2);
  ASSERT_TRUE(trainer.advance());
  PretendedCard::forget();
  ASSERT_TRUE(trainer.advance());
  const CardCounts& step = PretendedCard::counts();
  long waits = step.waited_copies + step.numbers_read;
  for (const auto& [device, count] : step.waits) waits += count;
  std::printf(
      "operators of a block: reference %ld, fast %ld, fast in bf16 %ld; of the rest of the model: "
      "%ld, %ld, %ld; waits of a step: %ld, copies: %ld\n",
      reference.block, fast.block, fast_bf16.block, reference.rest, fast.rest, fast_bf16.rest,
      waits, step.queued_copies);
  EXPECT_EQ(reference.block, kOperatorsOfABlock);
  EXPECT_EQ(reference.rest, kOperatorsBeside);
  EXPECT_EQ(fast.block, kFastOperatorsOfABlock);
  EXPECT_EQ(fast_bf16.block, kFastBf16OperatorsOfABlock);
  EXPECT_EQ(waits, kWaitsOfAStep);
  EXPECT_EQ(step.queued_copies, kCopiesOfAStep);
}

}  // namespace
}  // namespace skerry::diffusion
