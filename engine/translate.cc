// SPDX-License-Identifier: Apache-2.0
#include "engine/translate.h"

#include <algorithm>

namespace skerry::engine {
namespace {

Schedule schedule_of(pb::Schedule schedule) {
  switch (schedule) {
    case pb::SCHEDULE_LINEAR:
      return Schedule::kLinear;
    case pb::SCHEDULE_COSINE:
      return Schedule::kCosine;
    case pb::SCHEDULE_CYCLIC:
      return Schedule::kCyclic;
    default:
      return Schedule::kConstant;
  }
}

}  // namespace

ModelSpec model_of(const pb::ModelSpec& message) {
  const double scale = message.interpolation_scale();
  return {.image_size = message.image_size(),
          .channels = message.channels(),
          .patch_size = message.patch_size(),
          .width = message.width(),
          .depth = message.depth(),
          .heads = message.heads(),
          .classes = message.classes(),
          .router_experts = message.router_experts(),
          .caption_dim = message.caption_dim(),
          .interpolation_scale = scale == 0 ? 1 : scale,
          .caption_tokens = message.caption_tokens()};
}

TrainSpec training_of(const pb::EngineRequest::Start& start) {
  const pb::TrainSpec& message = start.train();
  TrainSpec train;
  train.seed = message.seed();
  train.expert = start.expert();
  train.attempt = start.attempt();
  train.steps = message.steps();
  train.batch_size = message.batch_size();
  train.learning_rate = message.learning_rate();
  train.schedule = schedule_of(message.schedule());
  train.warmup_steps = message.warmup_steps();
  train.clip = message.clip();
  train.ema = message.ema();
  train.label_dropout = message.label_dropout();
  train.weight_decay = message.weight_decay();
  train.cycle_steps = message.cycle_steps();
  train.flip = message.flip();
  train.weight_norm = message.weight_norm();
  train.gradient_checkpointing = message.gradient_checkpointing();
  train.micro_batch = message.micro_batch();
  train.shard_partitions = {start.shard_partitions().begin(), start.shard_partitions().end()};
  if (message.t_distribution() == pb::TIME_DISTRIBUTION_LOGNORMAL) {
    train.t_distribution = TimeDistribution::kLogNormal;
  }
  if (message.state() == pb::STATE_FORM_LEAN) train.state = StateForm::kLean;
  if (message.kernels() == pb::KERNELS_FAST) train.kernels = KernelChoice::kFast;
  train.threads = std::max(1U, message.threads());
  if (!message.precision().empty()) train.precision = message.precision();
  train.device = start.device();
  train.cards = std::max(1U, start.cards());
  return train;
}

pb::EngineEvent::Failure failure_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kExhausted:
      return pb::EngineEvent::FAILURE_OUT_OF_MEMORY;
    case ErrorCode::kCard:
      return pb::EngineEvent::FAILURE_CARD;
    case ErrorCode::kInvalid:
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
      return pb::EngineEvent::FAILURE_BAD_INPUT;
    default:
      return pb::EngineEvent::FAILURE_INTERNAL;
  }
}

}  // namespace skerry::engine
