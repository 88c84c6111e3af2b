// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/train.h"

#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <fstream>
#include <limits>
#include <thread>

#include "diffusion/runtime/device.h"
#include "diffusion/runtime/speed.h"
#include "diffusion/testing/pretended_card.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/batch_loader.h"
#include "diffusion/train/train_batch.h"
#include "diffusion/train/train_state.h"

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

class BatchTest : public TrainTest {
 protected:
  Batch batch(std::uint64_t step, std::uint32_t rows, std::uint32_t first = 0) {
    SampleOrder order(train_, set_.size());
    return make_batch(set_, order, model_, train_, step, first, rows);
  }

  TrainSpec train_ = tiny_training();
  TrainingSet set_ = TrainingSet::open(shards_, model_).value();
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
  train.kernels = KernelChoice::kFast;
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
TrainSpec in_parts(TrainSpec train, std::uint32_t rows) {
  train.micro_batch = rows;
  return train;
}
TrainSpec lean(TrainSpec train) {
  train.state = StateForm::kLean;
  return train;
}
TrainSpec held(TrainSpec train) {
  train.weight_norm = true;
  return train;
}
TrainSpec checkpointed(TrainSpec train) {
  train.gradient_checkpointing = true;
  return train;
}
INSTANTIATE_TEST_SUITE_P(Recipes, ResumeTest,
                         ::testing::Values(tiny_training(), tiny_bf16(), fast(tiny_training()),
                                           fast(tiny_bf16()), with_every_key(),
                                           in_parts(with_every_key(), 4), lean(tiny_training()),
                                           lean(in_parts(fast(tiny_bf16()), 4)),
                                           held(tiny_training()), held(lean(tiny_training()))));

class CheckpointingTest : public TrainTest, public ::testing::WithParamInterface<TrainSpec> {};

TEST_P(CheckpointingTest, ChangesNoBit) {
  Trainer plain = fresh(GetParam()), saving = fresh(checkpointed(GetParam()));
  run(plain, 5);
  run(saving, 5);
  EXPECT_EQ(snapshot(saving).file(), snapshot(plain).file());
}
INSTANTIATE_TEST_SUITE_P(Recipes, CheckpointingTest,
                         ::testing::Values(tiny_training(), tiny_bf16(), fast(tiny_training()),
                                           fast(tiny_bf16()), in_parts(tiny_training(), 4)));

// While it lives, LibTorch's memory for the host can end: within a step's
// optimiser phase, or for whatever is large. It fails as it does for a size
// that no machine has. It outlives the trainers, whose threads draw batches.
class EndingMemory : public at::Allocator {
 public:
  EndingMemory() {
    here = this;
    c10::SetCPUAllocator(this);
  }
  ~EndingMemory() override {
    at::removeCallback(handle_);
    c10::SetCPUAllocator(real_);
  }
  // It ends once, after so many allocations from the phase's begin.
  void end_after(std::uint64_t allocations) { left_ = allocations; }
  // It ends for more bytes than that at once, on any thread.
  void end_above(std::size_t bytes) { largest_ = bytes; }
  // There is none for threads other than this one: those that draw batches.
  void end_elsewhere() { elsewhere_ = 0; }
  bool has_ended() const { return left_ == kEnough; }

  at::DataPtr allocate(std::size_t bytes) override {
    const bool steps = std::this_thread::get_id() == stepping_;
    const bool ends = steps && in_phase_ && left_ != kEnough && left_-- == 0;
    return real_->allocate(ends || bytes > (steps ? largest_ : std::min(largest_, elsewhere_))
                               ? std::size_t{1} << 60
                               : bytes);
  }
  at::DeleterFnPtr raw_deleter() const override { return real_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr std::uint64_t kEnough = std::numeric_limits<std::uint64_t>::max();
  static inline EndingMemory* here = nullptr;
  static bool optimises(const at::RecordFunction& scope) {
    return std::string_view(scope.name()) == name_of(Phase::kOptimiser);
  }
  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& scope) {
    if (optimises(scope)) here->in_phase_ = true;
    return nullptr;
  }
  static void on_end(const at::RecordFunction& scope, at::ObserverContext* /*context*/) {
    if (optimises(scope)) here->in_phase_ = false;
  }

  at::Allocator* real_ = c10::GetCPUAllocator();
  std::uint64_t left_ = kEnough;
  std::size_t largest_ = std::numeric_limits<std::size_t>::max(), elsewhere_ = largest_;
  bool in_phase_ = false;
  const std::thread::id stepping_ = std::this_thread::get_id();  // not the one that draws batches
  at::CallbackHandle handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_begin, on_end).scopes({at::RecordScope::USER_SCOPE}));
};

class EndingMemoryTest : public TrainTest, public ::testing::WithParamInterface<TrainSpec> {};

TEST_P(EndingMemoryTest, NeverLeavesHalfAnUpdate) {
  TrainSpec train = GetParam();
  train.batch_size = 1;  // there are no smaller parts
  EndingMemory memory;
  Trainer unbroken = fresh(train), trainer = fresh(train);
  run(unbroken, 3);
  run(trainer, 2);
  const auto before = snapshot(trainer);
  std::uint64_t failures = 0;
  for (bool stepped = false; !stepped; ++failures) {
    memory.end_after(failures);
    const auto step = trainer.step();
    stepped = step.has_value();
    ASSERT_NE(stepped, memory.has_ended());
    if (stepped) continue;
    EXPECT_EQ(step.error().code, ErrorCode::kExhausted);
    ASSERT_TRUE(snapshot(trainer).file() == before.file())
        << "after " << failures << " allocations";
  }
  EXPECT_GT(failures, 1U) << "nothing was allocated";
  EXPECT_EQ(snapshot(trainer).file(), snapshot(unbroken).file());
}

TEST_P(EndingMemoryTest, TakesTheStepAgainInSmallerParts) {
  EndingMemory memory;
  Trainer parts = fresh(in_parts(GetParam(), 3));
  run(parts, 1);
  Trainer trainer = fresh(GetParam());
  memory.end_after(1);
  const auto stepped = trainer.step();
  ASSERT_TRUE(stepped) << stepped.error().message;
  EXPECT_TRUE(memory.has_ended());
  EXPECT_NE(trainer.fingerprint().find("micro-batch 3"), std::string::npos);
  EXPECT_EQ(snapshot(trainer).file(), snapshot(parts).file());
}
INSTANTIATE_TEST_SUITE_P(Forms, EndingMemoryTest,
                         ::testing::Values(tiny_training(), lean(tiny_training()),
                                           held(tiny_training())));

TEST_F(TrainTest, GoesOnInSmallerPartsWhereMemoryEnds) {
  TrainSpec train = tiny_training();
  train.batch_size = 128;
  EndingMemory memory;
  Trainer parts = fresh(in_parts(train, 16));
  run(parts, 1);
  Trainer trainer = fresh(train);
  memory.end_above(20'000);  // above the largest weight
  const auto stepped = trainer.step();
  ASSERT_TRUE(stepped) << stepped.error().message;
  EXPECT_NE(trainer.fingerprint().find("micro-batch 16"), std::string::npos)
      << trainer.fingerprint();
  EXPECT_EQ(snapshot(trainer).file(), snapshot(parts).file());
}

TEST_F(TrainTest, OneSampleThatDoesNotFitIsAnError) {
  EndingMemory memory;
  Trainer trainer = fresh(tiny_training());
  memory.end_above(1024);
  const auto stepped = trainer.step();
  ASSERT_FALSE(stepped);
  EXPECT_EQ(stepped.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(trainer.steps_done(), 0U);
}

// What a step has no room for beside itself has room between two.
TEST_F(TrainTest, ABatchThatCannotBeDrawnAheadIsDrawnWhenItIsTaken) {
  EndingMemory memory;
  memory.end_elsewhere();
  Trainer trainer = fresh(tiny_training());
  run(trainer, 3);
  EXPECT_EQ(trainer.fingerprint().find("micro-batch"), std::string::npos) << trainer.fingerprint();
}

TEST(OutOfMemory, IsToldByItsWords) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("could not create a primitive")));  // oneDNN's
  EXPECT_TRUE(
      is_out_of_memory(std::runtime_error("CUDA error: out of memory\nCUDA…")));  // pinned memory's
  EXPECT_TRUE(is_out_of_memory(
      std::runtime_error("kernel modulate_bf16: cuLaunchKernel: CUDA_ERROR_OUT_OF_MEMORY")));
  EXPECT_FALSE(is_out_of_memory(
      std::runtime_error("could not create a primitive descriptor for the matmul primitive")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("mat1 and mat2 shapes cannot be multiplied")));
}

TEST_F(TrainTest, MicroBatchesSumToTheBatch) {
  Trainer whole = fresh(tiny_training()), parts = fresh(in_parts(tiny_training(), 4));
  EXPECT_NE(whole.fingerprint(), parts.fingerprint());
  for (int i = 0; i < 10; ++i) {
    const auto a = whole.step(), b = parts.step();
    ASSERT_TRUE(a && b);
    EXPECT_NEAR(a->loss, b->loss, 1e-3 * a->loss);
    EXPECT_NEAR(a->gradient_norm, b->gradient_norm, 1e-2 * a->gradient_norm);
  }
  EXPECT_NE(snapshot(whole).file(), snapshot(parts).file());
}

TEST_F(TrainTest, AMicroBatchOfTheBatchOrMoreIsTheBatch) {
  Trainer whole = fresh(tiny_training());
  run(whole, 3);
  for (const std::uint32_t rows : {tiny_training().batch_size, 1000U}) {
    Trainer same = fresh(in_parts(tiny_training(), rows));
    run(same, 3);
    EXPECT_EQ(snapshot(same).file(), snapshot(whole).file());
  }
}

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

TEST_F(TrainTest, ALeanSnapshotHoldsTenBytesAParameter) {
  Trainer full = fresh(tiny_training()), small = fresh(lean(tiny_training()));
  EXPECT_NE(full.fingerprint(), small.fingerprint());
  run(full, 1);
  run(small, 1);
  const auto whole = snapshot(full), file = snapshot(small);
  const auto data_bytes = [](const storage::Safetensors& of) {
    return of.header().total_bytes - of.header().data_start;
  };
  EXPECT_EQ(data_bytes(whole), 16 * full.parameter_count());
  EXPECT_EQ(data_bytes(file), 10 * small.parameter_count());
  for (const storage::TensorInfo& tensor : file.header().tensors) {
    const bool raw = tensor.name.starts_with("raw/");
    EXPECT_EQ(tensor.dtype, raw ? storage::DType::kF32 : storage::DType::kBF16) << tensor.name;
    EXPECT_EQ(tensor.begin % storage::bytes_of(tensor.dtype), 0U) << tensor.name;
    // What the first step makes of the weights was rounded by nobody yet.
    if (raw) {
      EXPECT_EQ(file.view(tensor).data, whole.tensor(tensor.name)->data);
    }
  }
}

TEST_F(TrainTest, GoesOnInTheOtherForm) {
  Trainer small = fresh(lean(tiny_training()));
  run(small, 5);
  const auto halves = snapshot(small);
  auto full = Trainer::resume(model_, tiny_training(), shards_, halves);
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->steps_done(), 5U);
  const auto widened = snapshot(*full);
  for (const storage::TensorInfo& tensor : widened.header().tensors)
    EXPECT_EQ(tensor.dtype, storage::DType::kF32);
  auto back = Trainer::resume(model_, lean(tiny_training()), shards_, widened);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(snapshot(*back).file(), halves.file()) << "widened and narrowed again";
  run(*full, 1);
  Trainer other = fresh(tiny_training());
  run(other, 5);
  auto narrowed = Trainer::resume(model_, lean(tiny_training()), shards_, snapshot(other));
  ASSERT_TRUE(narrowed) << narrowed.error().message;
  run(*narrowed, 1);
}

TEST_F(TrainTest, LeanTrainsToTheSameEnd) {
  TrainSpec train = tiny_training();
  train.batch_size = 32;
  Trainer full = fresh(train), small = fresh(lean(train));
  double full_loss = 0, small_loss = 0;
  for (int i = 0; i < 100; ++i) {
    const auto a = full.step(), b = small.step();
    ASSERT_TRUE(a && b);
    if (i < 80) continue;
    full_loss += a->loss;
    small_loss += b->loss;
  }
  EXPECT_NE(small_loss, full_loss);
  EXPECT_NEAR(small_loss, full_loss, 0.05 * full_loss);
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
  EXPECT_EQ(healthy.non_finite().value(), std::nullopt);
  train.learning_rate = 1;
  train.weight_decay = 10;  // weights grow by −9 a step
  train.clip = 0;
  Trainer exploding = fresh(train);
  run(exploding, 80);
  EXPECT_TRUE(exploding.non_finite().value());
}

// A card is waited for once, whatever number of tensors there are: a copy that
// waits stops it each time.
TEST_F(TrainTest, ASnapshotOfACardWaitsOnceAndHasTheBytesOfTheCpus) {
  for (const StateForm form : {StateForm::kFull, StateForm::kLean}) {
    TrainSpec train = tiny_training();
    train.state = form;
    const TrainState here = initial_state(model_, train, {torch::kCPU});
    const TrainState there = initial_state(model_, train, {PretendedCard::device()});
    int pins = 0;
    SnapshotDevice device = snapshot_device(PretendedCard::device());
    device.pin = [&](void* begin, std::uint64_t) {
      return std::shared_ptr<void>(begin, [&](void*) { ++pins; });
    };
    SnapshotWriter writer(device);
    const int memory = ::memfd_create("snapshot", MFD_CLOEXEC),
              other = ::memfd_create("other", MFD_CLOEXEC);
    PretendedCard::forget();
    const auto bytes = writer.write(memory, snapshot_tensors(there, model_), {{"step", "0"}});
    ASSERT_TRUE(bytes);
    const CardCounts counts = PretendedCard::counts();
    EXPECT_EQ(counts.waited_copies, 0);
    EXPECT_EQ(counts.queued_copies, static_cast<long>(4 * there.raw.size()));
    EXPECT_EQ(counts.numbers_read, 0);
    EXPECT_EQ(counts.waits, (std::map<int, long>{{0, 1}}));
    ASSERT_EQ(
        SnapshotWriter().write(other, snapshot_tensors(here, model_), {{"step", "0"}}).value(),
        *bytes);
    std::string found(*bytes, '\0'), expected(*bytes, '\0');
    ASSERT_EQ(::pread(memory, found.data(), *bytes, 0), static_cast<ssize_t>(*bytes));
    ASSERT_EQ(::pread(other, expected.data(), *bytes, 0), static_cast<ssize_t>(*bytes));
    EXPECT_EQ(found, expected);
    // The pages stay pinned until the size changes.
    ASSERT_TRUE(writer.write(memory, snapshot_tensors(there, model_), {{"step", "1"}}));
    EXPECT_EQ(pins, 0);
    ASSERT_TRUE(
        writer.write(memory, snapshot_tensors(there, model_), {{"step", std::string(50, '1')}}));
    EXPECT_EQ(pins, 1);
    ::close(memory);
    ::close(other);
  }
}

TEST_F(TrainTest, ACardIsAskedOnceWhetherItsNumbersAreFinite) {
  for (const StateForm form : {StateForm::kFull, StateForm::kLean}) {
    TrainSpec train = tiny_training();
    train.state = form;
    TrainState state = initial_state(model_, train, {PretendedCard::device()});
    PretendedCard::forget();
    EXPECT_EQ(first_non_finite(state, model_), std::nullopt);
    EXPECT_EQ(PretendedCard::counts().numbers_read, 1);
    state.ema[1].fill_(std::nan(""));
    EXPECT_EQ(first_non_finite(state, model_), "ema/pos_embed.proj.bias");
    state.ema[1].fill_(3e38);  // whose square is not
    EXPECT_EQ(first_non_finite(state, model_), std::nullopt);
    state.v.back().fill_(-INFINITY);
    EXPECT_EQ(first_non_finite(state, model_), "v/proj_out_2.bias");
  }
}

TEST_F(TrainTest, OneBadWeightIsNamed) {
  TrainState state = initial_state(model_, tiny_training(), {torch::kCPU});
  EXPECT_EQ(first_non_finite(state, model_), std::nullopt);
  state.m.back()[0] = INFINITY;
  EXPECT_EQ(first_non_finite(state, model_), "m/proj_out_2.bias");
}

TEST_F(BatchTest, IsTheSameInParts) {
  // Step 5 crosses from one pass over the data to the next.
  const Batch whole = batch(5, 6), tail = batch(5, 2, 4), head = batch(5, 4);
  for (const auto member : {&Batch::x_t, &Batch::t, &Batch::labels, &Batch::target}) {
    EXPECT_TRUE(at::equal(whole.*member, at::cat({head.*member, tail.*member})));
  }
}

TEST_F(BatchTest, ALoaderGivesTheSameWhateverIsAskedForNext) {
  BatchLoader loader(set_, model_, train_, /*pinned=*/false);
  const auto expect = [&](std::uint64_t step, std::uint32_t first, std::uint32_t rows,
                          std::uint32_t count) {
    const Batch given = loader.take(step, first, rows), made = batch(step, count, first);
    for (const auto member : {&Batch::x_t, &Batch::t, &Batch::labels, &Batch::target}) {
      EXPECT_TRUE(at::equal(given.*member, made.*member)) << "step " << step << ", row " << first;
    }
  };
  ASSERT_EQ(train_.batch_size, 6U);
  for (const std::uint64_t step : {0, 1, 2}) expect(step, 0, 6, 6);
  for (const std::uint64_t step : {3, 4, 5}) {  // in parts, of which the last is smaller
    expect(step, 0, 4, 4);
    expect(step, 4, 4, 2);
  }
  expect(5, 0, 3, 3);  // again, in smaller parts
  expect(5, 3, 3, 3);
  expect(90, 0, 3, 3);
}

TEST_F(TrainTest, WeightNormalisationHoldsRowsAtTheLengthTheyAreDrawnWith) {
  const std::vector<ParameterShape> shapes = parameter_shapes(model_);
  const std::vector<double> lengths = held_lengths(model_);
  ASSERT_EQ(lengths.size(), shapes.size());
  const auto drawn = initial_weights(model_, 1, 0, 0);
  TrainSpec train = tiny_training();
  train.learning_rate = 0.05;
  Trainer free = fresh(train), trainer = fresh(held(train));
  run(free, 5);
  run(trainer, 5);
  const auto freed = snapshot(free), kept = snapshot(trainer);
  const auto rows_of = [](const storage::Safetensors& file, const ParameterShape& parameter) {
    const auto view = file.tensor("raw/" + parameter.name).value();
    return at::from_blob(const_cast<char*>(view.data.data()), parameter.shape, at::kFloat)
        .norm(2, 1);
  };
  int count = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (lengths[i] == 0) continue;
    ++count;
    EXPECT_NEAR(drawn[i].norm(2, 1).square().mean().sqrt().item<double>() / lengths[i], 1, 0.05)
        << shapes[i].name;
    EXPECT_TRUE(at::allclose(rows_of(kept, shapes[i]), at::full({shapes[i].shape[0]}, lengths[i])))
        << shapes[i].name;
    EXPECT_FALSE(
        at::allclose(rows_of(freed, shapes[i]), at::full({shapes[i].shape[0]}, lengths[i]), 0.1))
        << shapes[i].name;
  }
  EXPECT_EQ(count, 6 * static_cast<int>(model_.depth));
}

// And the mean is of rows that were held: with a mean of the last step alone it
// is they.
TEST_F(TrainTest, WeightNormalisationComesBeforeTheMean) {
  for (const bool is_lean : {false, true}) {
    TrainSpec train = held(is_lean ? lean(tiny_training()) : tiny_training());
    train.learning_rate = 0.05;
    train.ema = 0;
    Trainer trainer = fresh(train);
    run(trainer, 5);  // what starts at zero keeps the first two from matrices
    const auto file = snapshot(trainer);
    const auto raw = load_weights(file, "raw/", model_).value(),
               ema = load_weights(file, "ema/", model_).value();
    for (std::size_t i = 0; i < raw.size(); ++i) {
      EXPECT_TRUE(at::allclose(ema[i], raw[i], is_lean ? 0x1p-7 : 1e-6, 1e-30)) << i;
    }
  }
}

TEST_F(TrainTest, WeightNormalisationIsRefusedBesideWeightsToStartFrom) {
  const std::string four(16, '\0');
  std::ofstream(folder_ / "weights")
      << storage::encode_safetensors({{"pos_embed.proj.weight", storage::DType::kF32, {4}, four}},
                                     {})
             .value();
  shards_.push_back(folder_ / "weights");
  const auto refused = Trainer::create(model_, held(tiny_training()), shards_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid) << refused.error().message;
}

TEST_F(BatchTest, IsAPointOnTheLineToNoise) {
  const Batch made = batch(0, 6);
  const auto t = made.t.view({-1, 1, 1, 1});
  const auto x0 = made.x_t - t * made.target;
  SampleOrder order(train_, set_.size());
  for (std::int64_t row = 0; row < 6; ++row) {
    const auto index = order.at(static_cast<std::uint64_t>(row));
    EXPECT_NEAR(x0[row][0][0][0].item<float>(), set_.image(index)[0] / 127.5 - 1, 1e-4);
  }
  const auto epsilon = made.target + x0;
  EXPECT_NEAR(epsilon.mean().item<double>(), 0, 0.2);
  EXPECT_NEAR(epsilon.std().item<double>(), 1, 0.2);
}

TEST_F(BatchTest, OfLatentsIsAPointOnTheLineToThem) {
  model_.channels = 4;
  set_ = TrainingSet::open({write_latents(folder_ / "latents", model_, 20)}, model_).value();
  const Batch made = batch(0, 6);
  EXPECT_EQ(made.x_t.sizes(), at::IntArrayRef({6, 4, 8, 8}));
  const auto x0 = made.x_t - made.t.view({-1, 1, 1, 1}) * made.target;
  EXPECT_GT(x0.abs().max().item<double>(), 2) << "not brought into the range of pixels";
  SampleOrder order(train_, set_.size());
  std::vector<float> latent(model_.pixels());
  for (std::int64_t row = 0; row < 6; ++row) {
    set_.read(order.at(static_cast<std::uint64_t>(row)), latent);
    EXPECT_TRUE(at::allclose(x0[row].flatten(), torch::tensor(latent), 0, 1e-5));
  }
}

TEST_F(TrainTest, LearnsFromLatentsByEitherKernelsAndOnFromASnapshot) {
  model_.channels = 4;
  shards_ = {write_latents(folder_ / "latents", model_, 20)};
  for (const KernelChoice kernels : {KernelChoice::kReference, KernelChoice::kFast}) {
    TrainSpec train = tiny_training();
    train.kernels = kernels;
    Trainer unbroken = fresh(train);
    double first = 0, last = 0;
    for (int i = 0; i < 10; ++i) first += unbroken.step()->loss;
    const auto middle = snapshot(unbroken);
    auto resumed = Trainer::resume(model_, train, shards_, middle);
    ASSERT_TRUE(resumed) << resumed.error().message;
    for (int i = 0; i < 60; ++i) {
      const double loss = unbroken.step()->loss;
      if (i >= 50) last += loss;
      ASSERT_TRUE(resumed->step());
    }
    EXPECT_EQ(snapshot(*resumed).file(), snapshot(unbroken).file());
    EXPECT_LT(last, 0.6 * first);
  }
}

// What older run files say draws what it always drew.
TEST_F(BatchTest, TimeIsUniformUnlessAskedOtherwise) {
  const Batch uniform = batch(3, 500);
  for (std::uint32_t row = 0; row < 500; ++row) {
    Stream stream({.seed = train_.seed,
                   .expert = train_.expert,
                   .step = 3,
                   .sample = row,
                   .purpose = Purpose::kTime});
    EXPECT_EQ(uniform.t[row].item<float>(), static_cast<float>(stream.uniform()));
  }
  train_.t_distribution = TimeDistribution::kLogNormal;
  const Batch normal = batch(3, 500);
  const auto n = at::log(normal.t / (1 - normal.t));
  EXPECT_NEAR(n.mean().item<double>(), 0, 0.15);
  EXPECT_NEAR(n.std().item<double>(), 1, 0.1);
}

TEST_F(BatchTest, HalfOfTheImagesAreMirroredWhereAsked) {
  const auto images = [](const Batch& made) {
    return made.x_t - made.t.view({-1, 1, 1, 1}) * made.target;
  };
  const Batch plain = batch(0, 300);
  train_.flip = true;
  const Batch mixed = batch(0, 300);
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

TEST_F(BatchTest, LabelsAreDroppedAtTheRateAskedFor) {
  const auto dropped = [&](double rate) {
    train_.label_dropout = rate;
    const auto null_label = static_cast<std::int64_t>(model_.null_label());
    return (batch(0, 500).labels == null_label).sum().item<std::int64_t>();
  };
  EXPECT_EQ(dropped(0), 0);
  EXPECT_EQ(dropped(1), 500);
  EXPECT_NEAR(static_cast<double>(dropped(0.1)), 50, 25);
}

// Averaged weights as an export names them.
std::string exported(const storage::Safetensors& checkpoint) {
  std::vector<storage::TensorView> weights;
  for (const storage::TensorInfo& info : checkpoint.header().tensors) {
    if (!info.name.starts_with("ema/")) continue;
    weights.push_back(checkpoint.view(info));
    weights.back().name = info.name.substr(4);
  }
  return storage::encode_safetensors(weights, {}).value();
}

TEST_F(TrainTest, StartsFromTheWeightsThatComeWithTheShards) {
  Trainer earlier = fresh(tiny_training());
  run(earlier, 4);
  const auto checkpoint = snapshot(earlier);
  const std::string weights = folder_ / "weights";
  std::ofstream(weights, std::ios::binary) << exported(checkpoint);
  TrainSpec other = tiny_training();
  other.expert = 1;
  auto begun = Trainer::create(model_, other, {shards_[0], weights, shards_[1]});
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_EQ(begun->steps_done(), 0U);
  EXPECT_EQ(begun->sample_count(), 33U);
  const auto first = snapshot(*begun);
  for (const ParameterShape& parameter : parameter_shapes(model_)) {
    const auto expected = checkpoint.tensor("ema/" + parameter.name).value().data;
    EXPECT_EQ(first.tensor("raw/" + parameter.name).value().data, expected) << parameter.name;
    EXPECT_EQ(first.tensor("ema/" + parameter.name).value().data, expected) << parameter.name;
  }
  auto small = Trainer::create(model_, lean(other), {shards_[0], weights, shards_[1]});
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(snapshot(*small).tensor("raw/proj_out_2.weight").value().data,
            first.tensor("raw/proj_out_2.weight").value().data);
  // It goes on from its own checkpoint, not from those weights.
  run(*begun, 3);
  const auto middle = snapshot(*begun);
  auto resumed = Trainer::resume(model_, other, {shards_[0], weights, shards_[1]}, middle);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(snapshot(*resumed).file(), middle.file());
}

TEST_F(TrainTest, WeightsOfAnotherShapeAreRefused) {
  const std::string weights = folder_ / "weights";
  std::ofstream(weights, std::ios::binary) << exported(snapshot(fresh(tiny_training())));
  const auto refusal = [&](const ModelSpec& model) {
    const auto refused = Trainer::create(model, tiny_training(), {shards_[0], weights});
    return refused ? "" : refused.error().message;
  };
  ModelSpec other = model_;
  --other.depth;
  EXPECT_NE(refusal(other).find("more blocks than the model's 1"), std::string::npos)
      << refusal(other);
  other.depth = 3;
  EXPECT_NE(refusal(other).find("transformer_blocks.2"), std::string::npos) << refusal(other);
  other = model_;
  other.width = 32;
  EXPECT_NE(refusal(other).find("pos_embed.proj.weight"), std::string::npos) << refusal(other);
}

TEST_F(TrainTest, ShardsThatCannotBeTrainedWithAreErrors) {
  EXPECT_FALSE(Trainer::create(model_, tiny_training(), {folder_ / "missing"}));
  TrainSpec bad = tiny_training();
  bad.batch_size = 0;
  EXPECT_FALSE(Trainer::create(model_, bad, shards_));
}

}  // namespace
}  // namespace skerry::diffusion
