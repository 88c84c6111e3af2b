#include "diffusion/train.h"

#include <sys/mman.h>
#include <unistd.h>

#include "diffusion/testing.h"
#include "diffusion/train_batch.h"
#include "diffusion/train_state.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

class TrainTest : public ::testing::Test {
 protected:
  Trainer fresh(const TrainSpec& train) {
    auto made = Trainer::create(model_, train, shards_);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  static void run(Trainer& trainer, int steps) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(trainer.step());
  }
  // The snapshot as the daemon sees it: a memfd, mapped.
  static storage::Safetensors snapshot(const Trainer& trainer) {
    const int memory = ::memfd_create("snapshot", MFD_CLOEXEC);
    const auto bytes = trainer.write_snapshot(memory);
    EXPECT_TRUE(bytes) << (bytes ? "" : bytes.error().message);
    EXPECT_EQ(*bytes, trainer.snapshot_bytes());
    auto mapped = storage::Safetensors::map(memory, *bytes);
    EXPECT_TRUE(mapped) << (mapped ? "" : mapped.error().message);
    ::close(memory);
    return *mapped;
  }

  TempFolder folder_;
  ModelSpec model_ = tiny_model();
  std::vector<std::string> shards_{write_shard(folder_ / "a", model_, 20),
                                   write_shard(folder_ / "b", model_, 13)};
};

class ResumeTest : public TrainTest, public ::testing::WithParamInterface<TrainSpec> {};

TEST_P(ResumeTest, AResumedTrainingEndsInTheSameBytes) {
  Trainer unbroken = fresh(GetParam());
  run(unbroken, 14);
  Trainer first = fresh(GetParam());
  run(first, 7);
  const auto checkpoint = snapshot(first);
  auto second = Trainer::resume(model_, GetParam(), shards_, checkpoint);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->steps_done(), 7U);
  run(*second, 7);
  EXPECT_EQ(snapshot(*second).file(), snapshot(unbroken).file());
}

TrainSpec tiny_bf16() {
  TrainSpec train = tiny_training();
  train.precision = "bf16";
  return train;
}
TrainSpec fast(TrainSpec train) {
  train.kernels = Kernels::kFast;
  return train;
}
TrainSpec with_every_key() {
  TrainSpec train = fast(tiny_training());
  train.t_distribution = TimeDistribution::kLogNormal;
  train.flip = true;
  train.schedule = Schedule::kCyclic;
  train.cycle_steps = 5;
  return train;
}
INSTANTIATE_TEST_SUITE_P(Recipes, ResumeTest,
                         ::testing::Values(tiny_training(), tiny_bf16(), fast(tiny_training()),
                                           fast(tiny_bf16()), with_every_key()));

TEST_F(TrainTest, FastKernelsTrainToTheSameEnd) {
  Trainer reference = fresh(tiny_training());
  Trainer quick = fresh(fast(tiny_training()));
  EXPECT_NE(reference.fingerprint(), quick.fingerprint());
  for (int i = 0; i < 20; ++i) {
    const auto a = reference.step(), b = quick.step();
    ASSERT_TRUE(a && b);
    EXPECT_NEAR(a->loss, b->loss, 0.01 * a->loss);
  }
}

TEST_F(TrainTest, Bf16TrainsOtherwiseButToTheSameEnd) {
  Trainer exact = fresh(tiny_training());
  Trainer rounded = fresh(tiny_bf16());
  EXPECT_NE(exact.fingerprint(), rounded.fingerprint());
  double exact_loss = 0, rounded_loss = 0;
  for (int i = 0; i < 100; ++i) {
    const auto a = exact.step(), b = rounded.step();
    ASSERT_TRUE(a && b);
    if (i == 5) {
      EXPECT_NE(a->loss, b->loss);
    }
    if (i < 80) continue;
    exact_loss += a->loss;
    rounded_loss += b->loss;
  }
  EXPECT_NEAR(rounded_loss, exact_loss, 0.05 * exact_loss);
}

TEST_F(TrainTest, AnotherSeedExpertOrAttemptTrainsOtherwise) {
  const auto trained = [&](const TrainSpec& train) {
    Trainer trainer = fresh(train);
    run(trainer, 3);
    const auto file = snapshot(trainer);
    return std::string(file.tensor("raw/proj_out_2.weight").value().data);
  };
  const std::string reference = trained(tiny_training());
  EXPECT_EQ(trained(tiny_training()), reference);
  TrainSpec other = tiny_training();
  ++other.seed;
  EXPECT_NE(trained(other), reference);
  other = tiny_training();
  ++other.expert;
  EXPECT_NE(trained(other), reference);
  other = tiny_training();
  ++other.attempt;
  EXPECT_NE(trained(other), reference);
}

TEST_F(TrainTest, TheSnapshotHoldsFourTensorsAParameterByName) {
  Trainer trainer = fresh(tiny_training());
  run(trainer, 2);
  const auto file = snapshot(trainer);
  const auto& header = file.header();
  EXPECT_EQ(header.metadata.at("step"), "2");
  EXPECT_EQ(header.metadata.at("expert"), "2");
  EXPECT_EQ(header.metadata.at("fingerprint"), trainer.fingerprint());
  EXPECT_EQ(header.tensors.size(), 4 * parameter_shapes(model_).size());
  for (const char* prefix : {"ema/", "raw/", "m/", "v/"}) {
    EXPECT_TRUE(file.tensor(std::string(prefix) + "proj_out_1.bias")) << prefix;
  }
}

TEST_F(TrainTest, ACheckpointOfAnotherTrainingIsRefused) {
  Trainer trainer = fresh(tiny_training());
  const auto checkpoint = snapshot(trainer);
  TrainSpec other = tiny_training();
  ++other.seed;
  const auto refused = Trainer::resume(model_, other, shards_, checkpoint);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("seed"), std::string::npos);
  ModelSpec deeper = model_;
  ++deeper.depth;
  EXPECT_FALSE(Trainer::resume(deeper, tiny_training(), shards_, checkpoint));
  TrainSpec retried = tiny_training();
  ++retried.attempt;
  EXPECT_TRUE(Trainer::resume(model_, retried, shards_, checkpoint));
}

TEST_F(TrainTest, ItLearns) {
  TrainSpec train = tiny_training();
  train.batch_size = 32;
  Trainer trainer = fresh(train);
  double early = 0, late = 0;
  for (int i = 0; i < 200; ++i) {
    const auto metrics = trainer.step();
    ASSERT_TRUE(metrics);
    if (i < 10) early += metrics->loss / 10;
    if (i >= 180) late += metrics->loss / 20;
  }
  EXPECT_LT(late, 0.5 * early);
}

TEST_F(TrainTest, WhatIsNotFiniteIsFound) {
  TrainSpec train = tiny_training();
  Trainer healthy = fresh(train);
  run(healthy, 3);
  EXPECT_EQ(healthy.non_finite(), std::nullopt);
  train.learning_rate = 1;
  train.weight_decay = 10;  // weights grow by −9 a step
  train.clip = 0;
  Trainer exploding = fresh(train);
  run(exploding, 80);
  EXPECT_TRUE(exploding.non_finite());
}

TEST_F(TrainTest, OneBadWeightIsNamed) {
  TrainState state = initial_state(model_, tiny_training(), torch::kCPU);
  EXPECT_EQ(first_non_finite(state, model_), std::nullopt);
  state.m.back()[0] = INFINITY;
  EXPECT_EQ(first_non_finite(state, model_), "m/proj_out_2.bias");
}

TEST_F(TrainTest, ABatchIsTheSameInParts) {
  const TrainSpec train = tiny_training();
  const auto set = TrainingSet::open(shards_, model_);
  ASSERT_TRUE(set);
  SampleOrder order(train, set->size());
  // Step 5 crosses from one pass over the data to the next.
  const Batch whole = make_batch(*set, order, model_, train, 5, 0, 6);
  const Batch tail = make_batch(*set, order, model_, train, 5, 4, 2);
  const Batch head = make_batch(*set, order, model_, train, 5, 0, 4);
  for (const auto member : {&Batch::x_t, &Batch::t, &Batch::labels, &Batch::target}) {
    EXPECT_TRUE(at::equal(whole.*member, at::cat({head.*member, tail.*member})));
  }
}

TEST_F(TrainTest, ABatchIsAPointOnTheLineToNoise) {
  const TrainSpec train = tiny_training();
  const auto set = TrainingSet::open(shards_, model_);
  ASSERT_TRUE(set);
  SampleOrder order(train, set->size());
  const Batch batch = make_batch(*set, order, model_, train, 0, 0, 6);
  const auto t = batch.t.view({-1, 1, 1, 1});
  const auto x0 = batch.x_t - t * batch.target;
  for (std::int64_t row = 0; row < 6; ++row) {
    const auto index = order.at(static_cast<std::uint64_t>(row));
    EXPECT_NEAR(x0[row][0][0][0].item<float>(), set->image(index)[0] / 127.5 - 1, 1e-4);
  }
  const auto epsilon = batch.target + x0;
  EXPECT_NEAR(epsilon.mean().item<double>(), 0, 0.2);
  EXPECT_NEAR(epsilon.std().item<double>(), 1, 0.2);
}

// What older run files say draws what it always drew.
TEST_F(TrainTest, TimeIsUniformUnlessAskedOtherwise) {
  TrainSpec train = tiny_training();
  const auto set = TrainingSet::open(shards_, model_);
  ASSERT_TRUE(set);
  SampleOrder order(train, set->size());
  const Batch uniform = make_batch(*set, order, model_, train, 3, 0, 500);
  for (std::uint32_t row = 0; row < 500; ++row) {
    Stream stream(
        {.seed = train.seed, .expert = train.expert, .step = 3, .sample = row, .purpose = Purpose::kTime});
    EXPECT_EQ(uniform.t[row].item<float>(), static_cast<float>(stream.uniform()));
  }
  train.t_distribution = TimeDistribution::kLogNormal;
  const Batch normal = make_batch(*set, order, model_, train, 3, 0, 500);
  const auto n = at::log(normal.t / (1 - normal.t));
  EXPECT_NEAR(n.mean().item<double>(), 0, 0.15);
  EXPECT_NEAR(n.std().item<double>(), 1, 0.1);
}

TEST_F(TrainTest, HalfOfTheImagesAreMirroredWhereAsked) {
  TrainSpec train = tiny_training();
  const auto set = TrainingSet::open(shards_, model_);
  ASSERT_TRUE(set);
  SampleOrder order(train, set->size());
  const auto images = [&](const Batch& batch) {
    return batch.x_t - batch.t.view({-1, 1, 1, 1}) * batch.target;
  };
  const Batch plain = make_batch(*set, order, model_, train, 0, 0, 300);
  train.flip = true;
  const Batch mixed = make_batch(*set, order, model_, train, 0, 0, 300);
  EXPECT_TRUE(at::equal(plain.t, mixed.t));
  const auto before = images(plain), after = images(mixed);
  int mirrored = 0;
  for (std::int64_t i = 0; i < 300; ++i) {
    const bool flipped = at::allclose(after[i], before[i].flip(2), 0, 1e-4);
    EXPECT_NE(flipped, at::allclose(after[i], before[i], 0, 1e-4)) << i;
    mirrored += flipped ? 1 : 0;
  }
  EXPECT_NEAR(mirrored, 150, 45);
}

TEST_F(TrainTest, LabelsAreDroppedAtTheRateAskedFor) {
  TrainSpec train = tiny_training();
  const auto set = TrainingSet::open(shards_, model_);
  ASSERT_TRUE(set);
  const auto dropped = [&](double rate) {
    train.label_dropout = rate;
    SampleOrder order(train, set->size());
    const Batch batch = make_batch(*set, order, model_, train, 0, 0, 500);
    return (batch.labels == static_cast<std::int64_t>(model_.null_label())).sum().item<std::int64_t>();
  };
  EXPECT_EQ(dropped(0), 0);
  EXPECT_EQ(dropped(1), 500);
  EXPECT_NEAR(static_cast<double>(dropped(0.1)), 50, 25);
}

TEST_F(TrainTest, ShardsThatCannotBeTrainedWithAreErrors) {
  EXPECT_FALSE(Trainer::create(model_, tiny_training(), {folder_ / "missing"}));
  TrainSpec bad = tiny_training();
  bad.batch_size = 0;
  EXPECT_FALSE(Trainer::create(model_, bad, shards_));
}

}  // namespace
}  // namespace skerry::diffusion
