// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/clean_text.h"
#include "protocol/limits.h"
#include "protocol/validate_engine.h"

namespace skerry::protocol {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

pb::EngineRequest good_start() {
  pb::EngineRequest request;
  auto& model = *request.mutable_start()->mutable_model();
  model.set_image_size(28);
  model.set_channels(1);
  model.set_patch_size(4);
  model.set_width(128);
  model.set_depth(4);
  model.set_heads(4);
  model.set_classes(10);
  auto& train = *request.mutable_start()->mutable_train();
  train.set_steps(100);
  train.set_batch_size(8);
  train.set_learning_rate(1e-3);
  train.set_ema(0.999);
  train.set_label_dropout(0.1);
  train.set_precision("fp32");
  train.set_threads(1);
  return request;
}

pb::EngineEvent good_snapshot() {
  pb::EngineEvent event;
  event.mutable_snapshot()->set_from_step(0);
  event.mutable_snapshot()->set_to_step(10);
  event.mutable_snapshot()->set_bytes(4096);
  return event;
}

TEST(EngineRequest, GoodOnesPass) {
  EXPECT_TRUE(parse_engine_request(good_start().SerializeAsString()));
  pb::EngineRequest stop;
  stop.mutable_stop();
  EXPECT_TRUE(parse_engine_request(stop.SerializeAsString()));
}

struct BadRequest {
  const char* names;  // what the message must name
  std::function<void(pb::EngineRequest::Start&)> spoil;
};

TEST(EngineRequest, BadFieldsAreNamed) {
  const BadRequest cases[] = {
      {"model.image_size", [](auto& s) { s.mutable_model()->set_image_size(0); }},
      {"model.channels", [](auto& s) { s.mutable_model()->set_channels(65); }},
      {"model.patch_size", [](auto& s) { s.mutable_model()->set_patch_size(5); }},
      {"model.heads", [](auto& s) { s.mutable_model()->set_heads(3); }},
      {"model.classes", [](auto& s) { s.mutable_model()->set_classes(2001); }},
      {"train.steps", [](auto& s) { s.mutable_train()->set_steps(0); }},
      {"train.steps", [](auto& s) { s.mutable_train()->set_steps(kSteps + 1); }},
      {"train.batch_size", [](auto& s) { s.mutable_train()->set_batch_size(0); }},
      {"train.learning_rate", [](auto& s) { s.mutable_train()->set_learning_rate(kNan); }},
      {"train.learning_rate", [](auto& s) { s.mutable_train()->set_learning_rate(-1); }},
      {"train.schedule",
       [](auto& s) { s.mutable_train()->set_schedule(static_cast<pb::Schedule>(9)); }},
      {"train.cycle_steps", [](auto& s) { s.mutable_train()->set_schedule(pb::SCHEDULE_CYCLIC); }},
      {"train.kernels",
       [](auto& s) { s.mutable_train()->set_kernels(static_cast<pb::Kernels>(2)); }},
      {"train.t_distribution",
       [](auto& s) {
         s.mutable_train()->set_t_distribution(static_cast<pb::TimeDistribution>(2));
       }},
      {"train.state", [](auto& s) { s.mutable_train()->set_state(static_cast<pb::StateForm>(2)); }},
      {"train.clip", [](auto& s) { s.mutable_train()->set_clip(-1); }},
      {"train.ema", [](auto& s) { s.mutable_train()->set_ema(1); }},
      {"train.label_dropout", [](auto& s) { s.mutable_train()->set_label_dropout(1.1); }},
      {"train.precision", [](auto& s) { s.mutable_train()->set_precision("fp8"); }},
      {"train.threads", [](auto& s) { s.mutable_train()->set_threads(0); }},
      {"round_seconds", [](auto& s) { s.mutable_plan()->set_round_seconds(HUGE_VAL); }},
      {"shard_paths", [](auto& s) { s.add_shard_paths(std::string(5000, 'p')); }},
      {"model.router_experts",
       [](auto& s) { s.mutable_model()->set_router_experts(kPartitions + 1); }},
      {"partitions", [](auto& s) { s.add_shard_partitions(0); }},
      {"partitions",
       [](auto& s) {
         s.mutable_model()->set_router_experts(2);
         s.add_shard_paths("p");
       }},
      {"partitions",
       [](auto& s) {
         s.mutable_model()->set_router_experts(2);
         s.add_shard_paths("p");
         s.add_shard_partitions(2);
       }},
      {"resume_bytes", [](auto& s) { s.set_resume_bytes(std::uint64_t{1} << 60); }},
      {"device", [](auto& s) { s.set_device(-2); }},
      {"cards", [](auto& s) { s.set_cards(65); }},
  };
  for (const BadRequest& one : cases) {
    pb::EngineRequest request = good_start();
    one.spoil(*request.mutable_start());
    const auto parsed = parse_engine_request(request.SerializeAsString());
    ASSERT_FALSE(parsed) << one.names;
    EXPECT_NE(parsed.error().message.find(one.names), std::string::npos) << parsed.error().message;
  }
}

TEST(EngineMessages, UnknownKindsAndGarbageAreRefused) {
  EXPECT_FALSE(parse_engine_request(""));
  EXPECT_FALSE(parse_engine_event(""));
  EXPECT_FALSE(parse_engine_request("\xff\xff\xff"));
  EXPECT_FALSE(parse_engine_event("\x9a\x06\x00"));  // field 99: of a newer version
  EXPECT_FALSE(parse_engine_event(std::string(kEngineMessageBytes + 1, '\0')));
}

TEST(EngineEvent, SnapshotsSpanForward) {
  EXPECT_TRUE(parse_engine_event(good_snapshot().SerializeAsString()));
  pb::EngineEvent event = good_snapshot();
  event.mutable_snapshot()->set_from_step(10);
  EXPECT_FALSE(parse_engine_event(event.SerializeAsString()));
  event = good_snapshot();
  event.mutable_snapshot()->set_loss(kNan);
  EXPECT_FALSE(parse_engine_event(event.SerializeAsString()));
  event = good_snapshot();
  event.mutable_snapshot()->set_bytes(0);
  EXPECT_FALSE(parse_engine_event(event.SerializeAsString()));
}

TEST(EngineEvent, DivergingProgressIsHeardAsTheLargestNumber) {
  pb::EngineEvent event;
  event.mutable_progress()->set_loss(kNan);
  event.mutable_progress()->set_gradient_norm(2);
  const auto parsed = parse_engine_event(event.SerializeAsString());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->progress().loss(), std::numeric_limits<double>::max());
  EXPECT_EQ(parsed->progress().gradient_norm(), 2);
}

TEST(CleanText, FitsAStringField) {
  pb::EngineEvent event;
  event.mutable_failed()->set_reason(clean_text("\x80 broken", 100));
  EXPECT_TRUE(parse_engine_event(event.SerializeAsString()));
}

}  // namespace
}  // namespace skerry::protocol
