// SPDX-License-Identifier: Apache-2.0
// Training on captions: their rows in a batch, resumes, and that a model comes
// to follow them.
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "diffusion/model/model.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"
#include "diffusion/train/train_batch.h"

namespace skerry::diffusion {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class CaptionsTest : public ::testing::Test {
 protected:
  static ModelSpec model_of_captions() {
    ModelSpec model = tiny_pixart();
    model.image_size = 12;
    return model;
  }
  Trainer fresh(const TrainSpec& train) {
    auto made = Trainer::create(model_, train, files_);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  static void run(Trainer& trainer, int steps) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(trainer.step());
  }
  static std::string snapshot(const Trainer& trainer) {
    const int memory = ::memfd_create("snapshot", MFD_CLOEXEC);
    const auto bytes = trainer.write_snapshot(memory);
    EXPECT_TRUE(bytes) << (bytes ? "" : bytes.error().message);
    const auto mapped = storage::Safetensors::map(memory, bytes.value_or(0));
    EXPECT_TRUE(mapped) << (mapped ? "" : mapped.error().message);
    ::close(memory);
    return std::string(mapped->file());
  }
  std::string refusal(const ModelSpec& model, const std::vector<std::string>& files) {
    const auto made = Trainer::create(model, tiny_training(), files);
    EXPECT_FALSE(made);
    return made ? "" : made.error().message;
  }

  TempFolder folder_;
  ModelSpec model_ = model_of_captions();
  // Two shards, their captions before or after them.
  std::vector<std::string> files_{
      write_captions(folder_ / "captions-a", model_), write_shard(folder_ / "a", model_, 20),
      write_shard(folder_ / "b", model_, 13), write_captions(folder_ / "captions-b", model_)};
};

TEST_F(CaptionsTest, ABatchHasTheCaptionsOfItsSamplesPaddedToTheLongest) {
  const TrainingSet set = TrainingSet::open(files_, model_).value();
  TrainSpec train = tiny_training();
  train.label_dropout = 0;
  SampleOrder order(train, set.size());
  const Batch batch = make_batch(set, order, model_, train, 3, 0, 6);
  EXPECT_FALSE(batch.labels.defined());
  EXPECT_EQ(batch.captions.scalar_type(), at::kHalf);
  EXPECT_EQ(batch.captions.sizes(), at::IntArrayRef({6, batch.mask.size(1), 12}));
  EXPECT_EQ(batch.mask.sum(1).max().item<std::int64_t>(), batch.mask.size(1));
  for (std::int64_t row = 0; row < 6; ++row) {
    const std::uint64_t index = order.at(3 * 6 + static_cast<std::uint64_t>(row));
    const std::string_view expected = set.caption(index);
    const auto tokens = static_cast<std::int64_t>(expected.size() / 24);
    EXPECT_EQ(tokens, (set.label(index) + 1) % 4 + 1);
    EXPECT_EQ(batch.mask[row].sum().item<std::int64_t>(), tokens);
    EXPECT_EQ(batch.mask[row].narrow(0, 0, tokens).min().item<float>(), 1);
    const at::Tensor found = batch.captions[row].narrow(0, 0, tokens).contiguous();
    EXPECT_EQ(std::string_view(static_cast<const char*>(found.data_ptr()), found.nbytes()),
              expected);
    if (tokens < batch.mask.size(1)) {
      EXPECT_EQ(batch.captions[row].slice(0, tokens).abs().max().item<float>(), 0);
    }
  }
}

TEST_F(CaptionsTest, DropoutTakesTheNullCaption) {
  const TrainingSet set = TrainingSet::open(files_, model_).value();
  TrainSpec train = tiny_training();
  train.batch_size = 2000;
  train.label_dropout = 0.25;
  SampleOrder order(train, set.size());
  const Batch batch = make_batch(set, order, model_, train, 0, 0, 2000);
  // The null caption alone has one token.
  const double dropped = batch.mask.sum(1).eq(1).to(at::kFloat).mean().item<double>();
  EXPECT_NEAR(dropped, 0.25, 0.03);
}

TrainSpec with(const char* precision, KernelChoice kernels, StateForm state, bool checkpointing) {
  TrainSpec train = tiny_training();
  train.precision = precision;
  train.kernels = kernels;
  train.state = state;
  train.gradient_checkpointing = checkpointing;
  return train;
}

TEST_F(CaptionsTest, AResumedTrainingEndsInTheSameBytes) {
  TrainSpec held = with("fp32", KernelChoice::kReference, StateForm::kFull, false);
  held.weight_norm = true;
  TrainSpec parts = with("fp32", KernelChoice::kFast, StateForm::kFull, true);
  parts.micro_batch = 4;
  for (const TrainSpec& train :
       {with("fp32", KernelChoice::kReference, StateForm::kFull, false),
        with("bf16", KernelChoice::kFast, StateForm::kLean, false), held, parts}) {
    Trainer unbroken = fresh(train), first = fresh(train);
    run(unbroken, 9);
    run(first, 4);
    const std::string bytes = snapshot(first);
    const auto checkpoint = storage::Safetensors::parse(bytes);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    auto second = Trainer::resume(model_, train, files_, *checkpoint);
    ASSERT_TRUE(second) << second.error().message;
    run(*second, 5);
    EXPECT_EQ(snapshot(*second), snapshot(unbroken));
    EXPECT_EQ(unbroken.non_finite().value(), std::nullopt);
  }
}

TEST_F(CaptionsTest, SeveralRanksGiveTheBitsOfOne) {
  TrainSpec one = tiny_training(), two = tiny_training();
  one.micro_batch = 3;
  two.cards = 2;
  Trainer alone = fresh(one), shared = fresh(two);
  run(alone, 4);
  run(shared, 4);
  EXPECT_EQ(snapshot(alone), snapshot(shared));
}

TEST_F(CaptionsTest, ACheckpointOfOtherCaptionsIsRefused) {
  Trainer trainer = fresh(tiny_training());
  const std::string bytes = snapshot(trainer);
  const auto checkpoint = storage::Safetensors::parse(bytes);
  EXPECT_EQ(checkpoint->header().metadata.at("caption_dim"), "12");
  ModelSpec dit = model_;
  dit.caption_dim = 0;
  const std::vector<std::string> shards{files_[1], files_[2]};
  Trainer other = Trainer::create(dit, tiny_training(), shards).value();
  const std::string plain = snapshot(other);
  EXPECT_FALSE(storage::Safetensors::parse(plain)->header().metadata.contains("caption_dim"));
  const auto refused =
      Trainer::resume(model_, tiny_training(), files_, storage::Safetensors::parse(plain).value());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("caption_dim is missing"));
}

TEST_F(CaptionsTest, FilesThatDoNotFitAreNamed) {
  EXPECT_THAT(refusal(model_, {files_[1]}), HasSubstr("0 files of captions for 1 shards"));
  ModelSpec dit = model_;
  dit.caption_dim = 0;
  EXPECT_THAT(refusal(dit, {files_[0], files_[1]}), HasSubstr("does not read captions"));
  ModelSpec wide = model_;
  wide.caption_dim = 16;
  EXPECT_THAT(refusal(wide, files_), HasSubstr("captions-a: tokens must be F16 [n,16]"));
  const std::string plain = write_shard(folder_ / "plain", dit, 9);
  EXPECT_THAT(refusal(model_, {files_[0], plain}), HasSubstr("caption"));
  ModelSpec fewer = model_;
  fewer.classes = 1;  // two rows of captions, where the shard names three
  const std::string few = write_captions(folder_ / "few", fewer);
  EXPECT_THAT(refusal(model_, {few, files_[1]}), HasSubstr("few: sample 1 has caption 2 of 2"));
}

// Images of a class look alike, and only the caption tells a model the class.
TEST_F(CaptionsTest, AModelFollowsItsCaptions) {
  TrainSpec train = tiny_training();
  train.batch_size = 32;
  train.kernels = KernelChoice::kFast;
  train.ema = 0.9;
  Trainer trainer = fresh(train);
  double first = 0, last = 0;
  constexpr int kSteps = 400, kAveraged = 20;
  for (int i = 0; i < kSteps; ++i) {
    const auto step = trainer.step();
    ASSERT_TRUE(step) << step.error().message;
    if (i < kAveraged) first += step->loss / kAveraged;
    if (i >= kSteps - kAveraged) last += step->loss / kAveraged;
  }
  EXPECT_LT(last, 0.6 * first);

  const std::string bytes = snapshot(trainer);
  const auto checkpoint = storage::Safetensors::parse(bytes);
  const auto model =
      make_denoiser(model_, load_weights(*checkpoint, "ema/", model_).value(), torch::kCPU);
  // Held out: images that it has not seen.
  const TrainingSet set =
      TrainingSet::open({write_shard(folder_ / "held-out", model_, 96), files_[0]}, model_).value();
  train.batch_size = 96;
  train.label_dropout = 0;
  SampleOrder order(train, set.size());
  const Batch batch = make_batch(set, order, model_, train, 0, 0, 96);
  const at::NoGradGuard no_grad;
  const auto loss = [&](const at::Tensor& rows) {
    const auto velocity = model->forward(batch.x_t, batch.t,
                                         {.captions = batch.captions.index_select(0, rows),
                                          .mask = batch.mask.index_select(0, rows)});
    return at::mse_loss(velocity, batch.target).item<double>();
  };
  const auto own = at::arange(96);
  const double right = loss(own), shuffled = loss(own.roll(1));
  EXPECT_LT(right, 0.8 * shuffled) << right << " with the right captions, " << shuffled;
}

}  // namespace
}  // namespace skerry::diffusion
