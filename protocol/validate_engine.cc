// SPDX-License-Identifier: Apache-2.0
#include "protocol/validate_engine.h"

#include <algorithm>
#include <limits>

#include "protocol/fields.h"
#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

using namespace fields;

constexpr std::uint64_t kTensorBytes = std::uint64_t{1} << 42;
constexpr std::size_t kPathBytes = 4096;

template <class Message>
Result<Message> parse(std::string_view bytes) {
  Message message;
  if (bytes.size() > kEngineMessageBytes) {
    return bad("engine message", text("at most ", kEngineMessageBytes, " bytes"),
               text(bytes.size(), " bytes"));
  }
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(ErrorCode::kInvalid, "engine message: not a message of this protocol");
  }
  return message;
}

Result<void> validate_plan(const pb::EngineRequest::RoundPlan& plan) {
  TRY(in_range<std::uint64_t>("round_steps", plan.round_steps(), 0, kSteps));
  return not_negative("round_seconds", plan.round_seconds());
}

Result<void> validate_start(const pb::EngineRequest::Start& start) {
  TRY(validate_model(start.model()));
  TRY(validate_train(start.train()));
  TRY(validate_plan(start.plan()));
  TRY(in_range<std::uint32_t>("expert", start.expert(), 0, kPartitions));
  TRY(count_at_most("shard_paths", start.shard_paths_size(), kDatasetFiles));
  for (const std::string& path : start.shard_paths())
    TRY(text_at_most("shard_paths", path, kPathBytes));
  TRY(validate_partitions(start.model(), start.shard_partitions(), start.shard_paths_size()));
  TRY(in_range<std::uint64_t>("resume_bytes", start.resume_bytes(), 0, kTensorBytes));
  TRY(in_range<std::uint32_t>("cards", start.cards(), 0, static_cast<std::uint32_t>(kSlots)));
  return in_range<std::int32_t>("device", start.device(), -1, static_cast<std::int32_t>(kSlots));
}

Result<void> validate_snapshot(const pb::EngineEvent::Snapshot& snapshot) {
  TRY(in_range<std::uint64_t>("snapshot.to_step", snapshot.to_step(), 1, kSteps));
  if (snapshot.from_step() >= snapshot.to_step()) {
    return bad("snapshot.from_step", "less than to_step", text(snapshot.from_step()));
  }
  TRY(in_range<std::uint64_t>("snapshot.bytes", snapshot.bytes(), 1, kTensorBytes));
  TRY(finite("snapshot.loss", snapshot.loss()));
  TRY(finite("snapshot.gradient_norm", snapshot.gradient_norm()));
  TRY(text_at_most("snapshot.fingerprint", snapshot.fingerprint(), kReasonBytes));
  return not_negative("snapshot.train_seconds", snapshot.train_seconds());
}

Result<void> validate_ready(const pb::EngineEvent::Ready& ready) {
  TRY(text_at_most("ready.fingerprint", ready.fingerprint(), kReasonBytes));
  TRY(text_at_most("ready.device", ready.device(), kReasonBytes));
  return in_range<std::uint64_t>("ready.snapshot_bytes", ready.snapshot_bytes(), 0, kTensorBytes);
}

double finite_or_largest(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::max();
}

void make_finite(pb::EngineEvent::Progress& progress) {
  progress.set_loss(finite_or_largest(progress.loss()));
  progress.set_gradient_norm(finite_or_largest(progress.gradient_norm()));
  progress.set_samples_per_second(finite_or_largest(progress.samples_per_second()));
}

Result<void> validate_failed(const pb::EngineEvent::Failed& failed) {
  if (!pb::EngineEvent::Failure_IsValid(failed.failure())) {
    return bad("failed.failure", "a known kind", text(static_cast<int>(failed.failure())));
  }
  return text_at_most("failed.reason", failed.reason(), kEngineMessageBytes);
}

}  // namespace

Result<void> validate_model(const pb::ModelSpec& model) {
  TRY(in_range<std::uint32_t>("model.image_size", model.image_size(), 4, 1024));
  TRY(in_range<std::uint32_t>("model.channels", model.channels(), 1, 64));
  TRY(in_range<std::uint32_t>("model.patch_size", model.patch_size(), 1, 64));
  TRY(in_range<std::uint32_t>("model.width", model.width(), 8, 8192));
  TRY(in_range<std::uint32_t>("model.depth", model.depth(), 1, 128));
  TRY(in_range<std::uint32_t>("model.heads", model.heads(), 1, 128));
  TRY(in_range<std::uint32_t>("model.classes", model.classes(), 0,
                              static_cast<std::uint32_t>(kClasses)));
  TRY(in_range<std::uint32_t>("model.router_experts", model.router_experts(), 0, kPartitions));
  TRY(in_range<std::uint32_t>("model.caption_dim", model.caption_dim(), 0, kCaptionDim));
  TRY(in_range<std::uint32_t>("model.caption_tokens", model.caption_tokens(), 0, kCaptionTokens));
  if (const double scale = model.interpolation_scale(); scale != 0)
    TRY(in_range("model.interpolation_scale", scale, 1 / kInterpolation, kInterpolation));
  if (model.router_experts() > 0 && model.caption_dim() > 0)
    return bad("model.caption_dim", "0 for a router", text(model.caption_dim()));
  if (model.width() % model.heads() != 0) {
    return bad("model.heads", text("a divisor of width ", model.width()), text(model.heads()));
  }
  if (model.image_size() % model.patch_size() != 0) {
    return bad("model.patch_size", text("a divisor of image size ", model.image_size()),
               text(model.patch_size()));
  }
  return {};
}

Result<void> validate_partitions(const pb::ModelSpec& model,
                                 const google::protobuf::RepeatedField<std::uint32_t>& partitions,
                                 int shards) {
  if (model.router_experts() == 0) {
    return partitions.empty() ? Result<void>()
                              : bad("partitions", "none but for the router", "some");
  }
  if (partitions.size() != shards)
    return bad("partitions", text("one of each of ", shards, " shards"), text(partitions.size()));
  for (const std::uint32_t partition : partitions) {
    TRY(in_range<std::uint32_t>("partitions", partition, 0, model.router_experts() - 1));
  }
  return {};
}

Result<void> validate_choices(const pb::TrainSpec& train) {
  if (!pb::Schedule_IsValid(train.schedule())) {
    return bad("train.schedule", "constant, linear, cosine or cyclic",
               text(static_cast<int>(train.schedule())));
  }
  if (!pb::Kernels_IsValid(train.kernels())) {
    return bad("train.kernels", "reference or fast", text(static_cast<int>(train.kernels())));
  }
  if (!pb::TimeDistribution_IsValid(train.t_distribution())) {
    return bad("train.t_distribution", "uniform or lognormal",
               text(static_cast<int>(train.t_distribution())));
  }
  if (!pb::StateForm_IsValid(train.state())) {
    return bad("train.state", "full or lean", text(static_cast<int>(train.state())));
  }
  return {};
}

Result<void> validate_train(const pb::TrainSpec& train) {
  TRY(validate_choices(train));
  TRY(in_range<std::uint64_t>("train.steps", train.steps(), 1, kSteps));
  TRY(in_range<std::uint32_t>("train.batch_size", train.batch_size(), 1, 65536));
  TRY(in_range<std::uint32_t>("train.micro_batch", train.micro_batch(), 0, 65536));
  TRY(in_range("train.learning_rate", train.learning_rate(), 1e-12, 10.0));
  if (train.schedule() == pb::SCHEDULE_CYCLIC) {
    TRY(in_range<std::uint64_t>("train.cycle_steps", train.cycle_steps(), 1, kSteps));
  }
  TRY(in_range<std::uint64_t>("train.warmup_steps", train.warmup_steps(), 0, kSteps));
  TRY(in_range("train.clip", train.clip(), 0.0, 1e9));
  TRY(in_range("train.ema", train.ema(), 0.0, 0.9999999));
  TRY(in_range("train.label_dropout", train.label_dropout(), 0.0, 1.0));
  TRY(in_range("train.weight_decay", train.weight_decay(), 0.0, 10.0));
  if (train.precision() != "fp32" && train.precision() != "bf16") {
    return bad("train.precision", "\"fp32\" or \"bf16\"",
               text('"', train.precision().substr(0, 16), '"'));
  }
  return in_range<std::uint32_t>("train.threads", train.threads(), 1, 1024);
}

Result<pb::EngineRequest> parse_engine_request(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::EngineRequest request, parse<pb::EngineRequest>(bytes));
  switch (request.body_case()) {
    case pb::EngineRequest::kStart:
      TRY(validate_start(request.start()));
      break;
    case pb::EngineRequest::kPlan:
      TRY(validate_plan(request.plan()));
      break;
    case pb::EngineRequest::kSnapshotDone:
    case pb::EngineRequest::kStop:
      break;
    case pb::EngineRequest::BODY_NOT_SET:
      return fail(ErrorCode::kInvalid, "engine request: of a kind that this version does not know");
  }
  return request;
}

Result<pb::EngineEvent> parse_engine_event(std::string_view bytes) {
  ASSIGN_OR_RETURN(pb::EngineEvent event, parse<pb::EngineEvent>(bytes));
  switch (event.body_case()) {
    case pb::EngineEvent::kReady:
      TRY(validate_ready(event.ready()));
      break;
    case pb::EngineEvent::kSnapshot:
      TRY(validate_snapshot(event.snapshot()));
      break;
    case pb::EngineEvent::kFailed:
      TRY(validate_failed(event.failed()));
      break;
    case pb::EngineEvent::kStarting:
      TRY(text_at_most("starting.phase", event.starting().phase(), kNameBytes));
      break;
    case pb::EngineEvent::kProgress:
      make_finite(*event.mutable_progress());
      break;
    case pb::EngineEvent::kFinished:
      break;
    case pb::EngineEvent::BODY_NOT_SET:
      return fail(ErrorCode::kInvalid, "engine event: of a kind that this version does not know");
  }
  return event;
}

}  // namespace skerry::protocol
