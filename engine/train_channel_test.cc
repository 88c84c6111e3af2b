// SPDX-License-Identifier: Apache-2.0
#include "engine/train_channel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <functional>
#include <thread>

#include "base/random.h"
#include "base/temp_folder.h"
#include "base/text.h"
#include "protocol/engine.pb.h"
#include "protocol/validate_engine.h"
#include "storage/safetensors.h"

namespace skerry::engine {
namespace {

using protocol::Channel;
constexpr Duration kHang = std::chrono::minutes(5);

// Advances only when asked: rounds by seconds end at the same step each time.
class SteppingClock final : public Clock {
 public:
  explicit SteppingClock(Duration step) : step_(step) {}
  Now now() const override {
    boot_ += step_;
    return {.boot = boot_, .unix_ms = 0};
  }

 private:
  Duration step_;
  mutable Duration boot_{};
};

// The daemon's end, with an engine on a thread of its own behind it.
class TrainChannel : public ::testing::Test {
 protected:
  void SetUp() override {
    shard_ = folder_ / "shard.safetensors";
    std::string images(30 * 64, '\0');
    Stream stream({.seed = 1, .purpose = Purpose::kSimulation});
    for (char& pixel : images) pixel = static_cast<char>(stream.below(256));
    const std::string labels(30 * 4, '\0');
    ASSERT_TRUE(storage::write_safetensors(shard_,
                                           {{"images", storage::DType::kU8, {30, 1, 8, 8}, images},
                                            {"labels", storage::DType::kI32, {30}, labels}},
                                           {}));
  }
  void TearDown() override { hang_up(); }

  void launch() {
    hang_up();
    auto pair = Channel::make_pair();
    ASSERT_TRUE(pair);
    daemon_.emplace(std::move(pair->first));
    engine_ = std::thread([this, fd = pair->second.release()] {
      exit_code_ = serve_training(Channel(UniqueFd(fd)), clock_);
    });
    memory_ = UniqueFd();
    events_.clear();
  }
  void hang_up() {
    daemon_.reset();
    if (engine_.joinable()) engine_.join();
  }

  pb::EngineRequest start(std::uint64_t steps, std::uint64_t round_steps) const {
    pb::EngineRequest request;
    auto& body = *request.mutable_start();
    auto& model = *body.mutable_model();
    model.set_image_size(8);
    model.set_channels(1);
    model.set_patch_size(4);
    model.set_width(16);
    model.set_depth(1);
    model.set_heads(2);
    model.set_classes(1);
    auto& train = *body.mutable_train();
    train.set_seed(3);
    train.set_steps(steps);
    train.set_batch_size(4);
    train.set_learning_rate(1e-3);
    train.set_ema(0.999);
    train.set_precision("fp32");
    train.set_threads(1);
    body.set_expert(1);
    body.add_shard_paths(shard_);
    body.mutable_plan()->set_round_steps(round_steps);
    body.set_device(-1);
    return request;
  }
  void send(const pb::EngineRequest& request, int descriptor = -1) {
    ASSERT_TRUE(daemon_->send(request, descriptor));
    ASSERT_TRUE(daemon_->flush_all(kHang));
  }
  void release() {
    pb::EngineRequest request;
    request.mutable_snapshot_done();
    send(request);
  }
  void stop(bool finish_round, bool snapshot_now) {
    pb::EngineRequest request;
    request.mutable_stop()->set_finish_round(finish_round);
    request.mutable_stop()->set_snapshot_now(snapshot_now);
    send(request);
  }

  // The next event that tells no progress; phases of the start are kept apart.
  void expect_card_63_gone(const pb::EngineRequest& request) {
    send(request);
    const auto event = next();
    ASSERT_TRUE(event.has_failed()) << event.ShortDebugString();
    EXPECT_EQ(event.failed().failure(), pb::EngineEvent::FAILURE_CARD);
    EXPECT_NE(event.failed().reason().find("expected CUDA device 63, found "), std::string::npos);
  }

  pb::EngineEvent next() {
    while (events_.empty()) {
      const auto readable = daemon_->wait_readable(kHang);
      EXPECT_TRUE(readable && *readable) << "the engine says nothing";
      auto frames = daemon_->receive();
      EXPECT_TRUE(frames) << "the engine is gone";
      if (!frames) return {};
      for (auto& frame : *frames) {
        auto event = protocol::parse_engine_event(frame.bytes);
        EXPECT_TRUE(event) << (event ? "" : event.error().message);
        if (frame.descriptor) memory_ = std::move(frame.descriptor);
        if (event && event->has_starting()) phases_.push_back(event->starting().phase());
        if (event && !event->has_progress() && !event->has_starting())
          events_.push_back(std::move(*event));
      }
    }
    pb::EngineEvent event = std::move(events_.front());
    events_.erase(events_.begin());
    return event;
  }
  std::string snapshot_bytes(const pb::EngineEvent& event) {
    auto mapped = storage::Safetensors::map(memory_.get(), event.snapshot().bytes());
    EXPECT_TRUE(mapped) << (mapped ? "" : mapped.error().message);
    return mapped ? std::string(mapped->file()) : std::string();
  }
  // Trains to the end, releasing each snapshot; returns the last one.
  std::string train_to_end() {
    std::string last;
    for (pb::EngineEvent event = next(); !event.has_finished(); event = next()) {
      EXPECT_TRUE(event.has_snapshot()) << event.ShortDebugString();
      if (!event.has_snapshot()) return {};
      last = snapshot_bytes(event);
      release();
    }
    return last;
  }

  TempFolder folder_;
  std::string shard_;
  SteppingClock clock_{std::chrono::milliseconds(1)};
  std::optional<Channel> daemon_;
  std::thread engine_;
  int exit_code_ = -1;
  UniqueFd memory_;
  std::vector<pb::EngineEvent> events_;
  std::vector<std::string> phases_;
};

TEST_F(TrainChannel, TrainsRoundAfterRoundToItsTarget) {
  launch();
  send(start(10, 4));
  const auto ready = next();
  ASSERT_TRUE(ready.has_ready()) << ready.ShortDebugString();
  const std::vector<std::string> phases = {"opening the device", "reading the shards",
                                           "loading the weights"};
  EXPECT_EQ(phases_, phases);
  EXPECT_EQ(ready.ready().step(), 0U);
  EXPECT_GT(ready.ready().parameters(), 1000U);
  std::uint64_t at = 0;
  for (pb::EngineEvent event = next(); !event.has_finished(); event = next()) {
    ASSERT_TRUE(event.has_snapshot()) << event.ShortDebugString();
    EXPECT_EQ(event.snapshot().from_step(), at);
    at = event.snapshot().to_step();
    EXPECT_TRUE(at % 4 == 0 || at == 10) << at;
    EXPECT_EQ(event.snapshot().samples(), 4 * (at - event.snapshot().from_step()));
    release();
  }
  EXPECT_EQ(at, 10U);
  engine_.join();
  EXPECT_EQ(exit_code_, 0);
}

TEST_F(TrainChannel, KeepsItsStateInTheFormThatItIsTold) {
  pb::EngineRequest request = start(10, 4);
  for (const auto& [form, halves] :
       {std::pair{pb::STATE_FORM_FULL, false}, {pb::STATE_FORM_LEAN, true}}) {
    request.mutable_start()->mutable_train()->set_state(form);
    launch();
    send(request);
    ASSERT_TRUE(next().has_ready());
    EXPECT_EQ(train_to_end().find("BF16") != std::string::npos, halves);
  }
}

TEST_F(TrainChannel, TheRoutersJobIsAnExpertsButForItsShards) {
  pb::EngineRequest request = start(10, 4);
  auto& job = *request.mutable_start();
  job.set_expert(2);
  job.mutable_model()->set_router_experts(2);
  job.add_shard_paths(shard_);
  job.add_shard_partitions(0);
  job.add_shard_partitions(1);
  launch();
  send(request);
  ASSERT_TRUE(next().has_ready());
  const auto first = next();
  ASSERT_TRUE(first.has_snapshot()) << first.ShortDebugString();
  EXPECT_NEAR(first.snapshot().loss(), std::log(2), 0.3);  // nats: the same images are in both
  EXPECT_EQ(first.snapshot().fingerprint(), "");           // as Ready said
  EXPECT_NE(snapshot_bytes(first).find("ema/class_token"), std::string::npos);
  release();
  const std::string last = train_to_end();
  EXPECT_NE(last.find("\"router_experts\":\"2\""), std::string::npos);
}

TEST_F(TrainChannel, AnUnreleasedSnapshotIsNotWrittenOver) {
  launch();
  send(start(40, 2));
  ASSERT_TRUE(next().has_ready());
  const auto first = next();
  ASSERT_TRUE(first.has_snapshot());
  const std::string bytes = snapshot_bytes(first);
  // The engine trains on; it must not leave, and must not touch the memory,
  // before it hears of the release.
  EXPECT_EQ(bytes, snapshot_bytes(first));
  stop(/*finish_round=*/true, /*snapshot_now=*/false);
  EXPECT_EQ(bytes, snapshot_bytes(first));
  release();
  const auto second = next();
  if (second.has_snapshot()) {
    EXPECT_EQ(second.snapshot().from_step(), first.snapshot().to_step());
    EXPECT_EQ(second.snapshot().to_step() % 2, 0U);
    release();
    EXPECT_TRUE(next().has_finished());
  } else {
    EXPECT_TRUE(second.has_finished()) << second.ShortDebugString();
  }
}

TEST_F(TrainChannel, ResumesFromADescriptorInTheSameBytes) {
  launch();
  send(start(12, 6));
  ASSERT_TRUE(next().has_ready());
  const auto half = next();
  ASSERT_EQ(half.snapshot().to_step(), 6U);
  const std::string half_bytes = snapshot_bytes(half);
  release();
  const std::string unbroken = train_to_end();

  launch();
  UniqueFd checkpoint(::memfd_create("checkpoint", MFD_CLOEXEC));
  ASSERT_EQ(::write(checkpoint.get(), half_bytes.data(), half_bytes.size()),
            static_cast<ssize_t>(half_bytes.size()));
  pb::EngineRequest request = start(12, 6);
  request.mutable_start()->set_resume_bytes(half_bytes.size());
  send(request, checkpoint.get());
  EXPECT_EQ(next().ready().step(), 6U);
  EXPECT_EQ(train_to_end(), unbroken);
}

TEST_F(TrainChannel, StopsAtOnceWithASnapshot) {
  launch();
  send(start(1'000'000, 500'000));
  ASSERT_TRUE(next().has_ready());
  stop(/*finish_round=*/false, /*snapshot_now=*/true);
  pb::EngineEvent event = next();
  if (event.has_snapshot()) {
    EXPECT_LT(event.snapshot().to_step(), 500'000U);
    release();
    event = next();
  }
  ASSERT_TRUE(event.has_finished()) << event.ShortDebugString();
  EXPECT_FALSE(event.finished().complete());
}

TEST_F(TrainChannel, StopsWithoutOneWhereTheRoundIsDropped) {
  launch();
  send(start(1'000'000, 500'000));
  ASSERT_TRUE(next().has_ready());
  stop(/*finish_round=*/false, /*snapshot_now=*/false);
  const auto event = next();
  ASSERT_TRUE(event.has_finished()) << event.ShortDebugString();
}

TEST_F(TrainChannel, RoundsMayBeMeasuredInTime) {
  launch();
  auto request = start(1'000'000, 0);
  request.mutable_start()->mutable_plan()->set_round_seconds(0.05);
  send(request);
  ASSERT_TRUE(next().has_ready());
  const auto event = next();
  ASSERT_TRUE(event.has_snapshot());
  EXPECT_LE(event.snapshot().to_step(), 50U);
}

TEST_F(TrainChannel, LeavesWhenTheChannelCloses) {
  launch();
  send(start(1'000'000, 500'000));
  ASSERT_TRUE(next().has_ready());
  hang_up();
  EXPECT_EQ(exit_code_, 0);
}

TEST_F(TrainChannel, ADivergedTrainingIsSaidAndNeverASnapshot) {
  launch();
  auto request = start(1'000'000, 20);
  request.mutable_start()->mutable_train()->set_learning_rate(1);
  request.mutable_start()->mutable_train()->set_weight_decay(10);
  send(request);
  ASSERT_TRUE(next().has_ready());
  pb::EngineEvent event = next();
  while (event.has_snapshot()) {
    release();
    event = next();
  }
  ASSERT_TRUE(event.has_failed()) << event.ShortDebugString();
  EXPECT_EQ(event.failed().failure(), pb::EngineEvent::FAILURE_NON_FINITE);
}

// A card that is off the bus is no reason to train on the CPU in its place, nor
// to doubt the shards.
TEST_F(TrainChannel, ACardThatIsGoneIsACardFault) {
  launch();
  auto request = start(10, 5);
  request.mutable_start()->set_device(63);
  expect_card_63_gone(request);
}

// Where CUDA shows a part of what it is to train on.
TEST_F(TrainChannel, OneOfSeveralCardsThatIsGoneIsACardFaultToo) {
  launch();
  auto request = start(10, 5);
  request.mutable_start()->set_device(0);
  request.mutable_start()->set_cards(64);
  expect_card_63_gone(request);
}

// As threads of the CPU: the bits are those of one in parts.
TEST_F(TrainChannel, SeveralCardsShareEachBatch) {
  launch();
  auto request = start(4, 4);
  request.mutable_start()->set_cards(2);
  send(request);
  pb::EngineEvent event = next();
  while (event.has_starting() || event.has_progress()) event = next();
  ASSERT_TRUE(event.has_ready()) << event.ShortDebugString();
  EXPECT_NE(event.ready().fingerprint().find("micro-batch 2"), std::string::npos)
      << event.ready().fingerprint();
}

TEST_F(TrainChannel, AShardThatIsNotThereIsBadInput) {
  launch();
  auto request = start(10, 5);
  request.mutable_start()->set_shard_paths(0, folder_ / "missing.safetensors");
  send(request);
  const auto event = next();
  ASSERT_TRUE(event.has_failed());
  EXPECT_EQ(event.failed().failure(), pb::EngineEvent::FAILURE_BAD_INPUT);
  EXPECT_NE(event.failed().reason().find("missing.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace skerry::engine
