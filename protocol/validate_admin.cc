// SPDX-License-Identifier: Apache-2.0
// Checks the requests of people, and the coordinator's answers.
#include "protocol/fields.h"
#include "protocol/identity.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "protocol/validate_engine.h"
#include "protocol/validate_parts.h"

namespace skerry::protocol::parts {
namespace {

using namespace fields;

constexpr std::size_t kClassNameBytes = 256;
constexpr std::uint64_t kSamples = std::uint64_t{1} << 40;

Result<void> validate_list(const pb::ListRequest& list) {
  TRY(text_at_most("after", list.after(), kNameBytes));
  return in_range<std::uint32_t>("limit", list.limit(), 0, kPageItems);
}

Result<void> validate_named(const pb::Named& named) { return validate_name(named.name(), "name"); }

Result<void> validate_token(const pb::TokenCreate& create) {
  if (!pb::Role_IsValid(create.role()) || create.role() == pb::ROLE_NONE) {
    return bad("role", "node, viewer or admin", text(static_cast<int>(create.role())));
  }
  TRY(in_range<std::uint64_t>("uses", create.uses(), 1, kTokenUses));
  return in_range<std::uint64_t>("ttl_seconds", create.ttl_seconds(), 1, kTokenTtlSeconds);
}

Result<void> validate_dataset(const pb::DatasetAdd& add) {
  TRY(validate_name(add.name(), "dataset name"));
  TRY(in_range<std::uint32_t>("dataset.partitions", add.partitions(), 1, kPartitions));
  TRY(in_range<std::uint64_t>("dataset.samples", add.samples(), 0, kSamples));
  TRY(in_range<std::uint32_t>("dataset.channels", add.channels(), 1, 64));
  TRY(in_range<std::uint32_t>("dataset.image_size", add.image_size(), 4, 1024));
  TRY(in_range<std::uint32_t>("dataset.caption_dim", add.caption_dim(), 0, kCaptionDim));
  TRY(in_range<std::uint32_t>("dataset.caption_tokens", add.caption_tokens(), 0, kCaptionTokens));
  TRY(text_at_most("dataset.text_encoder", add.text_encoder(), kTextEncoderBytes));
  TRY(count_at_most("dataset.classes", add.classes_size(), kClasses));
  for (const std::string& name : add.classes())
    TRY(text_at_most("dataset.classes", name, kClassNameBytes));
  TRY(count_at_most("dataset.files", add.files_size(), kDatasetFiles));
  for (const pb::DatasetFile& file : add.files()) {
    TRY(validate(file));
    TRY(in_range<std::int32_t>("dataset.files.partition", file.partition(), -1,
                               static_cast<std::int32_t>(add.partitions()) - 1));
  }
  return {};
}

Result<void> validate_files(const google::protobuf::RepeatedPtrField<pb::DatasetFile>& files) {
  TRY(count_at_most("files", files.size(), kDatasetFiles));
  for (const pb::DatasetFile& file : files) TRY(validate(file));
  return {};
}

Result<void> validate_info(const pb::DatasetInfo& info) {
  TRY(in_range<std::uint32_t>("dataset.partitions", info.partitions(), 1, kPartitions));
  return validate_files(info.files());
}

Result<void> validate_role(std::string_view field, pb::Role role) {
  if (pb::Role_IsValid(role)) return {};
  return bad(field, "a known role", text(static_cast<int>(role)));
}

Result<void> validate_token_info(const pb::TokenInfo& info) {
  return validate_role("token.role", info.role());
}

// What the coordinator reports of a run that it accepted. Refuses only values
// that no reader can handle.
Result<void> validate_spec(const pb::RunSpec& spec) {
  const pb::TrainSpec& train = spec.train();
  TRY(validate_choices(train));
  for (const double number :
       {spec.round_seconds(), train.learning_rate(), train.clip(), train.ema(),
        train.label_dropout(), train.weight_decay(), spec.turn_seconds(), spec.budget_dollars(),
        spec.budget_dollars_per_hour(), spec.max_node_price()}) {
    TRY(finite("run.spec", number));
  }
  return {};
}

Result<void> validate_run(const pb::RunInfo& run) {
  TRY(validate_spec(run.spec()));
  TRY(finite("run.samples_per_second", run.samples_per_second()));
  TRY(finite("run.dollars", run.dollars()));
  TRY(finite("run.dollars_per_hour", run.dollars_per_hour()));
  TRY(finite("run.goodput", run.goodput()));
  TRY(count_at_most("run.experts", run.experts_size(), kPartitions + 1));  // and the router's job
  for (const pb::ExpertInfo& expert : run.experts()) {
    TRY(finite("expert.loss", expert.loss()));
    TRY(finite("expert.gradient_norm", expert.gradient_norm()));
    TRY(finite("expert.samples_per_second", expert.samples_per_second()));
    TRY(finite("expert.eta_seconds", expert.eta_seconds()));
    TRY(finite("expert.dollars", expert.dollars()));
    TRY(length_or_empty("expert.checkpoint", expert.checkpoint(), kKeyBytes));
  }
  return finite("run.eta_seconds", run.eta_seconds());
}

Result<void> validate_budget(const pb::RunBudget& budget) {
  TRY(validate_name(budget.run(), "run"));
  TRY(in_range("dollars", budget.dollars(), 0.0, kDollarsMost));
  TRY(in_range("dollars_per_hour", budget.dollars_per_hour(), 0.0, kDollarsMost));
  return in_range("max_node_price", budget.max_node_price(), 0.0, kPriceMost);
}

Result<void> validate_node(const pb::NodeInfo& node) {
  TRY(validate_role("node.role", node.role()));
  TRY(validate_slots(node.slots()));
  TRY(finite("node.speed", node.speed()));
  TRY(finite("node.price", node.price()));
  TRY(count_at_most("node.status", node.status_size(), kSlots));
  for (const pb::SlotStatus& status : node.status()) TRY(validate(status));
  return in_range<std::uint64_t>("node.leaves_in_seconds", node.leaves_in_seconds(), 0,
                                 kLeavesInMs / 1000);
}

Result<void> validate_point(const pb::HistoryPoint& point) {
  TRY(finite("point.loss", point.loss()));
  TRY(finite("point.gradient_norm", point.gradient_norm()));
  return finite("point.train_seconds", point.train_seconds());
}

Result<void> validate_object(const pb::ObjectInfo& info) {
  TRY(validate(info.object()));
  return in_range<std::int32_t>("object.expert", info.expert(), -1,
                                static_cast<std::int32_t>(kPartitions));
}

Result<void> validate_ensemble(const pb::EnsembleReply& reply) {
  TRY(validate_run(reply.run()));
  TRY(validate_info(reply.dataset()));
  TRY(validate_files(reply.router()));
  TRY(validate_files(reply.content().files()));
  TRY(count_at_most("ensemble.experts", reply.experts_size(), kPartitions));
  for (const pb::EnsembleExpert& expert : reply.experts()) {
    if (!expert.checkpoint().manifest().empty()) TRY(validate(expert.checkpoint()));
  }
  const pb::ObjectRef& router = reply.learned_router().checkpoint();
  if (!router.manifest().empty()) TRY(validate(router));
  return {};
}

template <class Items, class Check>
Result<void> each(std::string_view field, const Items& items, std::size_t limit, Check check) {
  TRY(count_at_most(field, items.size(), limit));
  for (const auto& item : items) TRY(check(item));
  return {};
}

}  // namespace

Result<void> validate(const pb::DatasetFile& file) {
  TRY(validate(file.object()));
  TRY(validate_name(file.object().name(), "file name"));
  for (const std::string_view role :
       {"shard", "router", "partition", "fit", "test", "captions", "index", "weights"}) {
    if (file.role() == role) return {};
  }
  return bad("file.role", "shard, router, partition, fit, test, captions, index or weights",
             file.role().substr(0, 32));
}

Result<void> validate(const pb::AdminRequest& request) {
  switch (request.body_case()) {
    case pb::AdminRequest::kTokenCreate:
      return validate_token(request.token_create());
    case pb::AdminRequest::kTokenList:
      return validate_list(request.token_list());
    case pb::AdminRequest::kTokenRevoke:
      return validate_named(request.token_revoke());
    case pb::AdminRequest::kNodeList:
      return validate_list(request.node_list());
    case pb::AdminRequest::kNodeShow:
      return validate_named(request.node_show());
    case pb::AdminRequest::kNodeCordon:
      return validate_named(request.node_cordon());
    case pb::AdminRequest::kNodeUncordon:
      return validate_named(request.node_uncordon());
    case pb::AdminRequest::kNodeDrain:
      return validate_named(request.node_drain());
    case pb::AdminRequest::kNodeEvict:
      return validate_named(request.node_evict());
    case pb::AdminRequest::kNodeRevoke:
      return validate_named(request.node_revoke());
    case pb::AdminRequest::kNodeLogs:
      return validate_named(request.node_logs());
    case pb::AdminRequest::kDatasetAdd:
      return validate_dataset(request.dataset_add());
    case pb::AdminRequest::kDatasetList:
      return validate_list(request.dataset_list());
    case pb::AdminRequest::kDatasetShow:
      return validate_named(request.dataset_show());
    case pb::AdminRequest::kDatasetDelete:
      return validate_named(request.dataset_delete());
    case pb::AdminRequest::kRunCreate:
      return validate_run_spec(request.run_create().spec());
    case pb::AdminRequest::kRunList:
      return validate_list(request.run_list());
    case pb::AdminRequest::kRunShow:
      return validate_named(request.run_show());
    case pb::AdminRequest::kRunPause:
      return validate_named(request.run_pause());
    case pb::AdminRequest::kRunResume:
      return validate_named(request.run_resume());
    case pb::AdminRequest::kRunStop:
      return validate_named(request.run_stop());
    case pb::AdminRequest::kRunExtend:
      TRY(validate_name(request.run_extend().run(), "run"));
      return in_range<std::uint64_t>("steps", request.run_extend().steps(), 1, kSteps);
    case pb::AdminRequest::kRunExpert:
      TRY(validate_name(request.run_expert().run(), "run"));
      return in_range<std::uint32_t>("expert", request.run_expert().expert(), 0, kPartitions - 1);
    case pb::AdminRequest::kRunAdopt:
      return validate_name(request.run_adopt().run(), "run");
    case pb::AdminRequest::kRunBudget:
      return validate_budget(request.run_budget());
    case pb::AdminRequest::kRunDelete:
      return validate_named(request.run_delete());
    case pb::AdminRequest::kRunWhy:
      return validate_named(request.run_why());
    case pb::AdminRequest::kRunHistory:
      TRY(validate_name(request.run_history().name(), "run"));
      TRY(in_range<std::uint32_t>("limit", request.run_history().limit(), 0, kPageItems));
      return in_range<std::uint32_t>("expert", request.run_history().expert(), 0, kPartitions);
    case pb::AdminRequest::kShardList:
      return validate_named(request.shard_list());
    case pb::AdminRequest::kEventList:
      if (!request.event_list().run().empty())
        TRY(validate_name(request.event_list().run(), "run"));
      return in_range<std::uint32_t>("limit", request.event_list().limit(), 0, kPageItems);
    case pb::AdminRequest::kEnsemble:
      return validate_named(request.ensemble());
    case pb::AdminRequest::kStatus:
      return validate_list(request.status());
    case pb::AdminRequest::kObjectList:
      if (!request.object_list().run().empty())
        TRY(validate_name(request.object_list().run(), "run"));
      TRY(length_or_empty("after", request.object_list().after(), kKeyBytes));
      return in_range<std::uint32_t>("limit", request.object_list().limit(), 0, kPageItems);
    case pb::AdminRequest::kObjectVerify:
      return length("manifest", request.object_verify().manifest(), kKeyBytes);
    case pb::AdminRequest::BODY_NOT_SET:
      break;
  }
  return fail(ErrorCode::kInvalid, "admin request: of a kind that this version does not know");
}

Result<void> validate(const pb::AdminReply& reply) {
  switch (reply.body_case()) {
    case pb::AdminReply::kTokenCreated:
      TRY(validate_token_info(reply.token_created().info()));
      return length("token.secret", reply.token_created().secret(), kKeyBytes);
    case pb::AdminReply::kTokens:
      return each("tokens", reply.tokens().tokens(), kPageItems, validate_token_info);
    case pb::AdminReply::kNodes:
      return each("nodes", reply.nodes().nodes(), kPageItems, validate_node);
    case pb::AdminReply::kLogs:
      return count_at_most("logs", reply.logs().lines_size(), kLogLines);
    case pb::AdminReply::kDatasets:
      return each("datasets", reply.datasets().datasets(), kPageItems, validate_info);
    case pb::AdminReply::kRuns:
      return each("runs", reply.runs().runs(), kPageItems, validate_run);
    case pb::AdminReply::kShards:
      return each("shards", reply.shards().shards(), kDatasetFiles,
                  [](const pb::ShardInfo& shard) { return validate(shard.object()); });
    case pb::AdminReply::kEvents:
      return count_at_most("events", reply.events().events_size(), kPageItems);
    case pb::AdminReply::kEnsemble:
      return validate_ensemble(reply.ensemble());
    case pb::AdminReply::kObjects:
      TRY(length_or_empty("objects.next", reply.objects().next(), kKeyBytes));
      return each("objects", reply.objects().objects(), kPageItems, validate_object);
    case pb::AdminReply::kVerified:
      return each(
          "verified.damaged", reply.verified().damaged(), kDamagedChunks,
          [](const std::string& chunk) { return length("verified.damaged", chunk, kKeyBytes); });
    case pb::AdminReply::kAdopted:
      return reply.adopted().has_run() ? validate_run(reply.adopted().run()) : Result<void>();
    case pb::AdminReply::kHistory:
      return each("history.points", reply.history().points(), kPageItems, validate_point);
    case pb::AdminReply::kWhy:
    case pb::AdminReply::kAck:
    case pb::AdminReply::kStatus:
      return finite("status.idle_dollars", reply.status().idle_dollars());
    case pb::AdminReply::BODY_NOT_SET:
      break;
  }
  return fail(ErrorCode::kInvalid, "admin reply: of a kind that this version does not know");
}

}  // namespace skerry::protocol::parts
