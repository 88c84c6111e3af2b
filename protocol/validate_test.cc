// SPDX-License-Identifier: Apache-2.0
#include "protocol/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const std::string kHash(32, 'h');

pb::RunSpec good_spec() {
  pb::RunSpec spec;
  spec.set_name("fashion");
  spec.set_dataset("fashion-mnist");
  spec.mutable_train()->set_steps(2000);
  spec.mutable_train()->set_batch_size(64);
  spec.mutable_train()->set_learning_rate(1e-4);
  spec.mutable_train()->set_ema(0.9999);
  spec.mutable_train()->set_precision("fp32");
  spec.mutable_train()->set_threads(1);
  spec.set_preset("S/2");
  spec.set_round_seconds(60);
  spec.set_copies(1);
  spec.set_keep(2);
  spec.set_turn_rounds(5);
  spec.set_router_kind("analytic");
  return spec;
}

pb::Commit good_commit() {
  pb::Commit commit;
  commit.set_run("r-0123456789");
  commit.set_from_step(10);
  commit.set_to_step(20);
  commit.set_parent(kHash);
  commit.mutable_manifest()->set_manifest(kHash);
  commit.mutable_manifest()->set_manifest_bytes(100);
  return commit;
}

pb::DatasetAdd good_dataset() {
  pb::DatasetAdd add;
  add.set_name("fashion-mnist");
  add.set_partitions(4);
  add.set_samples(60000);
  add.set_channels(1);
  add.set_image_size(28);
  auto& file = *add.add_files();
  file.mutable_object()->set_manifest(kHash);
  file.mutable_object()->set_manifest_bytes(10);
  file.mutable_object()->set_name("shard-0-0.safetensors");
  file.set_role("shard");
  return add;
}

// One good request of every kind that has fields to spoil.
pb::ControlRequest hello() {
  pb::ControlRequest request;
  request.mutable_hello()->mutable_version()->set_major(1);
  request.mutable_hello()->add_slots();
  auto& held = *request.mutable_hello()->add_held();
  held.set_run("r-0123456789");
  held.set_head(kHash);
  return request;
}
pb::ControlRequest heartbeat() {
  pb::ControlRequest request;
  request.mutable_heartbeat()->add_slots()->set_run("r-0123456789");
  request.mutable_heartbeat()->add_replicas()->set_manifest(kHash);
  request.mutable_heartbeat()->add_transfers()->set_manifest(kHash);
  request.mutable_heartbeat()->mutable_transfers(0)->add_sources();
  request.mutable_heartbeat()->add_faults()->set_manifest(kHash);
  request.mutable_heartbeat()->mutable_faults(0)->set_kind(pb::PeerFault::FAULT_NO_ANSWER);
  return request;
}
pb::ControlRequest commit() {
  pb::ControlRequest request;
  *request.mutable_commit() = good_commit();
  return request;
}
pb::ControlRequest report() {
  pb::ControlRequest request;
  request.mutable_engine_report()->set_run("r-0123456789");
  return request;
}
pb::ControlRequest token_create() {
  pb::ControlRequest request;
  auto& create = *request.mutable_admin()->mutable_token_create();
  create.set_role(pb::ROLE_NODE);
  create.set_uses(1);
  create.set_ttl_seconds(60);
  return request;
}
pb::ControlRequest dataset_add() {
  pb::ControlRequest request;
  *request.mutable_admin()->mutable_dataset_add() = good_dataset();
  return request;
}
pb::ControlRequest run_create() {
  pb::ControlRequest request;
  *request.mutable_admin()->mutable_run_create()->mutable_spec() = good_spec();
  return request;
}
pb::ControlRequest run_budget() {
  pb::ControlRequest request;
  request.mutable_admin()->mutable_run_budget()->set_run("fashion");
  return request;
}
pb::ControlRequest node_show() {
  pb::ControlRequest request;
  request.mutable_admin()->mutable_node_show()->set_name("rented-1");
  return request;
}
pb::ControlRequest object_list() {
  pb::ControlRequest request;
  request.mutable_admin()->mutable_object_list()->set_after(kHash);
  return request;
}
pb::ControlRequest object_verify() {
  pb::ControlRequest request;
  request.mutable_admin()->mutable_object_verify()->set_manifest(kHash);
  return request;
}
pb::ControlRequest node_list() {
  pb::ControlRequest request;
  request.mutable_admin()->mutable_node_list()->set_limit(10);
  return request;
}

struct Case {
  const char* names;  // what the message must name
  pb::ControlRequest (*good)();
  std::function<void(pb::ControlRequest&)> spoil;
};

pb::SlotStatus& slot(pb::ControlRequest& r) { return *r.mutable_heartbeat()->mutable_slots(0); }
pb::PeerFault& fault(pb::ControlRequest& r) { return *r.mutable_heartbeat()->mutable_faults(0); }
pb::Transfer& transfer(pb::ControlRequest& r) {
  return *r.mutable_heartbeat()->mutable_transfers(0);
}
pb::RunSpec& spec(pb::ControlRequest& r) {
  return *r.mutable_admin()->mutable_run_create()->mutable_spec();
}
pb::DatasetAdd& dataset(pb::ControlRequest& r) { return *r.mutable_admin()->mutable_dataset_add(); }
pb::TokenCreate& token(pb::ControlRequest& r) { return *r.mutable_admin()->mutable_token_create(); }

const Case kCases[] = {
    {"hello.software", hello,
     [](auto& r) { r.mutable_hello()->set_software(std::string(600, 's')); }},
    {"hello.generation", hello, [](auto& r) { r.mutable_hello()->set_generation(0x10000); }},
    {"slots", hello,
     [](auto& r) {
       for (int i = 0; i < 65; ++i) r.mutable_hello()->add_slots();
     }},
    {"held.head", hello, [](auto& r) { r.mutable_hello()->mutable_held(0)->set_head("short"); }},
    {"held.step", hello, [](auto& r) { r.mutable_hello()->mutable_held(0)->set_step(kSteps + 1); }},
    {"run", hello, [](auto& r) { r.mutable_hello()->mutable_held(0)->set_run("../x"); }},
    {"replica.manifest", heartbeat,
     [](auto& r) { r.mutable_heartbeat()->mutable_replicas(0)->set_manifest("short"); }},
    {"heartbeat.replicas", heartbeat,
     [](auto& r) {
       for (std::size_t i = 0; i < kReplicas; ++i)
         r.mutable_heartbeat()->add_replicas()->set_manifest(kHash);
     }},
    {"slot", heartbeat, [](auto& r) { slot(r).set_slot(64); }},
    {"slot.phase", heartbeat, [](auto& r) { slot(r).set_phase(static_cast<pb::SlotPhase>(42)); }},
    {"slot.loss", heartbeat, [](auto& r) { slot(r).set_loss(kNan); }},
    {"slot.samples_per_second", heartbeat, [](auto& r) { slot(r).set_samples_per_second(-1); }},
    {"expert", heartbeat, [](auto& r) { slot(r).set_expert(kPartitions + 1); }},
    {"commit.to_step", commit, [](auto& r) { r.mutable_commit()->set_to_step(kSteps + 1); }},
    {"commit.from_step", commit, [](auto& r) { r.mutable_commit()->set_from_step(20); }},
    {"commit.parent", commit, [](auto& r) { r.mutable_commit()->set_parent("p"); }},
    {"object.manifest", commit,
     [](auto& r) { r.mutable_commit()->mutable_manifest()->clear_manifest(); }},
    {"object.manifest_bytes", commit,
     [](auto& r) { r.mutable_commit()->mutable_manifest()->set_manifest_bytes(kChunkBytes + 1); }},
    {"commit.metrics.loss", commit,
     [](auto& r) { r.mutable_commit()->mutable_metrics()->set_loss(kNan); }},
    {"commit.metrics.cards", commit,
     [](auto& r) { r.mutable_commit()->mutable_metrics()->set_cards(65); }},
    {"commit.fingerprint", commit,
     [](auto& r) { r.mutable_commit()->set_fingerprint(std::string(2000, 'f')); }},
    {"engine_report.failure", report,
     [](auto& r) {
       r.mutable_engine_report()->set_failure(static_cast<pb::EngineEvent::Failure>(9));
     }},
    {"engine_report.reason", report,
     [](auto& r) { r.mutable_engine_report()->set_reason(std::string(2000, 'r')); }},
    {"engine_report.last_lines", report,
     [](auto& r) {
       for (int i = 0; i < 201; ++i) r.mutable_engine_report()->add_last_lines("line");
     }},
    {"engine_report.last_lines", report,
     [](auto& r) { r.mutable_engine_report()->add_last_lines(std::string(513, 'l')); }},
    {"role", token_create, [](auto& r) { token(r).set_role(pb::ROLE_NONE); }},
    {"role", token_create, [](auto& r) { token(r).set_role(static_cast<pb::Role>(7)); }},
    {"uses", token_create, [](auto& r) { token(r).set_uses(0); }},
    {"ttl_seconds", token_create, [](auto& r) { token(r).set_ttl_seconds(kTokenTtlSeconds + 1); }},
    {"dataset name", dataset_add, [](auto& r) { dataset(r).set_name("Fashion"); }},
    {"dataset.partitions", dataset_add, [](auto& r) { dataset(r).set_partitions(0); }},
    {"dataset.samples", dataset_add,
     [](auto& r) { dataset(r).set_samples(std::uint64_t{1} << 41); }},
    {"dataset.files.partition", dataset_add,
     [](auto& r) { dataset(r).mutable_files(0)->set_partition(4); }},
    {"object name", dataset_add,
     [](auto& r) { dataset(r).mutable_files(0)->mutable_object()->set_name("../../etc/passwd"); }},
    {"file name", dataset_add,
     [](auto& r) { dataset(r).mutable_files(0)->mutable_object()->clear_name(); }},
    {"file.role", dataset_add, [](auto& r) { dataset(r).mutable_files(0)->set_role("virus"); }},
    {"dataset.classes", dataset_add,
     [](auto& r) {
       for (int i = 0; i < 2001; ++i) dataset(r).add_classes("c");
     }},
    {"name", run_create, [](auto& r) { spec(r).set_name(""); }},
    {"name", run_create, [](auto& r) { spec(r).set_name(std::string(64, 'n')); }},
    {"dataset", run_create, [](auto& r) { spec(r).set_dataset("-x"); }},
    {"model.preset", run_create, [](auto& r) { spec(r).set_preset("M/2"); }},
    {"model.preset", run_create, [](auto& r) { spec(r).set_width(64); }},
    {"model.preset", run_create, [](auto& r) { spec(r).clear_preset(); }},
    {"model.width", run_create,
     [](auto& r) {
       spec(r).clear_preset();
       spec(r).set_depth(1);
     }},
    {"train.steps", run_create, [](auto& r) { spec(r).mutable_train()->set_steps(0); }},
    {"train.precision", run_create,
     [](auto& r) { spec(r).mutable_train()->set_precision("fp16"); }},
    {"checkpoint.round_seconds", run_create, [](auto& r) { spec(r).set_round_seconds(0); }},
    {"checkpoint.round_seconds", run_create, [](auto& r) { spec(r).set_round_seconds(kNan); }},
    {"checkpoint.round_steps", run_create, [](auto& r) { spec(r).set_round_steps(kSteps + 1); }},
    {"checkpoint.copies", run_create, [](auto& r) { spec(r).set_copies(0); }},
    {"checkpoint.keep", run_create, [](auto& r) { spec(r).set_keep(0); }},
    {"hello.price", hello, [](auto& r) { r.mutable_hello()->set_price(-0.01); }},
    {"hello.price", hello, [](auto& r) { r.mutable_hello()->set_price(10'001); }},
    {"hello.price", hello, [](auto& r) { r.mutable_hello()->set_price(kNan); }},
    {"budget.dollars", run_create, [](auto& r) { spec(r).set_budget_dollars(-1); }},
    {"budget.dollars_per_hour", run_create,
     [](auto& r) { spec(r).set_budget_dollars_per_hour(kNan); }},
    {"budget.max_node_price", run_create, [](auto& r) { spec(r).set_max_node_price(10'001); }},
    {"dollars", run_budget,
     [](auto& r) { r.mutable_admin()->mutable_run_budget()->set_dollars(1e10); }},
    {"schedule.turn_rounds", run_create, [](auto& r) { spec(r).set_turn_rounds(1'000'001); }},
    {"schedule.turn_seconds", run_create, [](auto& r) { spec(r).set_turn_seconds(-1); }},
    {"schedule.turn_seconds", run_create, [](auto& r) { spec(r).set_turn_seconds(kNan); }},
    {"schedule.cards", run_create, [](auto& r) { spec(r).set_cards("some"); }},
    {"schedule.cards_per_expert", run_create, [](auto& r) { spec(r).set_cards_per_expert(65); }},
    {"router.kind", run_create, [](auto& r) { spec(r).set_router_kind("magic"); }},
    {"model.init", run_create, [](auto& r) { spec(r).set_init(std::string(5000, 'i')); }},
    {"train.weight_norm", run_create,
     [](auto& r) {
       spec(r).set_init("weights");
       spec(r).mutable_train()->set_weight_norm(true);
     }},
    {"name", node_show, [](auto& r) { r.mutable_admin()->mutable_node_show()->set_name("a b"); }},
    {"limit", node_list, [](auto& r) { r.mutable_admin()->mutable_node_list()->set_limit(501); }},
    {"heartbeat.transfers", heartbeat,
     [](auto& r) {
       for (std::size_t i = 0; i < kTransfers; ++i)
         *r.mutable_heartbeat()->add_transfers() = transfer(r);
     }},
    {"heartbeat.faults", heartbeat,
     [](auto& r) {
       for (std::size_t i = 0; i < kPeerFaults; ++i)
         *r.mutable_heartbeat()->add_faults() = fault(r);
     }},
    {"fault.manifest", heartbeat, [](auto& r) { fault(r).set_manifest("short"); }},
    {"fault.peer", heartbeat, [](auto& r) { fault(r).set_peer(std::string(200, 'p')); }},
    {"fault.kind", heartbeat, [](auto& r) { fault(r).set_kind(pb::PeerFault::FAULT_UNSPECIFIED); }},
    {"fault.kind", heartbeat,
     [](auto& r) { fault(r).set_kind(static_cast<pb::PeerFault::Kind>(9)); }},
    {"heartbeat.leaves_in_ms", heartbeat,
     [](auto& r) { r.mutable_heartbeat()->set_leaves_in_ms(kLeavesInMs + 1); }},
    {"heartbeat.notice", heartbeat,
     [](auto& r) { r.mutable_heartbeat()->set_notice(std::string(kNoticeBytes + 1, 'n')); }},
    {"transfer.manifest", heartbeat, [](auto& r) { transfer(r).set_manifest("short"); }},
    {"transfer.bytes", heartbeat, [](auto& r) { transfer(r).set_bytes(~std::uint64_t{0}); }},
    {"transfer.millis", heartbeat, [](auto& r) { transfer(r).set_millis(~std::uint64_t{0}); }},
    {"transfer.sources", heartbeat,
     [](auto& r) {
       for (std::size_t i = 0; i < kTransferSources; ++i) transfer(r).add_sources();
     }},
    {"transfer.source", heartbeat,
     [](auto& r) { transfer(r).mutable_sources(0)->set_peer(std::string(200, 'p')); }},
    {"transfer.source.bytes", heartbeat,
     [](auto& r) { transfer(r).mutable_sources(0)->set_bytes(~std::uint64_t{0}); }},
    {"run", object_list, [](auto& r) { r.mutable_admin()->mutable_object_list()->set_run("a b"); }},
    {"after", object_list,
     [](auto& r) { r.mutable_admin()->mutable_object_list()->set_after("short"); }},
    {"limit", object_list,
     [](auto& r) { r.mutable_admin()->mutable_object_list()->set_limit(501); }},
    {"manifest", object_verify,
     [](auto& r) { r.mutable_admin()->mutable_object_verify()->clear_manifest(); }},
    {"control request", hello, [](auto& r) { r.clear_body(); }},
    {"admin request", node_list, [](auto& r) { r.mutable_admin()->clear_body(); }},
};

TEST(ControlRequest, BadFieldsAreRefusedByName) {
  for (const Case& one : kCases) {
    pb::ControlRequest request = one.good();
    const auto good = parse_control_request(request.SerializeAsString());
    ASSERT_TRUE(good) << one.names << ": " << good.error().message;
    one.spoil(request);
    const auto bad = parse_control_request(request.SerializeAsString());
    ASSERT_FALSE(bad) << one.names;
    EXPECT_EQ(bad.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(bad.error().message.starts_with(one.names))
        << one.names << " / " << bad.error().message;
  }
}

TEST(ControlRequest, GarbageAndSizeAreRefused) {
  EXPECT_FALSE(parse_control_request(""));
  EXPECT_FALSE(parse_control_request("\xff\xff\xff\xff"));
  EXPECT_FALSE(parse_control_request(std::string(kControlMessageBytes + 1, '\0')));
  EXPECT_FALSE(
      parse_control_request("\x08\x01\x9a\x06\x00"));  // id 1 and a kind of a newer version
}

TEST(ControlReply, WhatADaemonActsOnIsChecked) {
  pb::ControlReply reply;
  auto& slot_assignment = *reply.mutable_assignment()->add_slots();
  slot_assignment.set_run("r-0123456789");
  *slot_assignment.mutable_spec() = good_spec();
  auto& model = *slot_assignment.mutable_model();
  model.set_image_size(28);
  model.set_channels(1);
  model.set_patch_size(2);
  model.set_width(384);
  model.set_depth(12);
  model.set_heads(6);
  auto& shard = *slot_assignment.add_shards();
  shard.set_manifest(kHash);
  shard.set_manifest_bytes(10);
  shard.set_name("shard-0-0.safetensors");
  const auto good = parse_control_reply(reply.SerializeAsString());
  ASSERT_TRUE(good) << good.error().message;
  slot_assignment.add_more_slots(1);
  EXPECT_TRUE(parse_control_reply(reply.SerializeAsString()));
  for (const std::uint32_t wrong : {0U, 1U, 64U}) {
    slot_assignment.add_more_slots(wrong);
    EXPECT_FALSE(parse_control_reply(reply.SerializeAsString())) << wrong;
    slot_assignment.mutable_more_slots()->RemoveLast();
  }
  pb::Replica& replica = *reply.mutable_assignment()->add_replicas();
  replica.set_run("r-0123456789");
  *replica.mutable_object() = shard;
  ASSERT_TRUE(parse_control_reply(reply.SerializeAsString()));
  replica.mutable_object()->set_manifest("short");
  EXPECT_FALSE(parse_control_reply(reply.SerializeAsString()));
  replica.mutable_object()->set_manifest(kHash);
  replica.set_run("../x");
  EXPECT_FALSE(parse_control_reply(reply.SerializeAsString()));
  reply.mutable_assignment()->clear_replicas();
  model.set_router_experts(2);
  EXPECT_FALSE(
      parse_control_reply(reply.SerializeAsString()));  // the router must know whose shard it reads
  slot_assignment.add_partitions(1);
  EXPECT_TRUE(parse_control_reply(reply.SerializeAsString()));
  shard.set_name("/etc/passwd");
  EXPECT_FALSE(parse_control_reply(reply.SerializeAsString()));

  pb::ControlReply answer;
  answer.mutable_commit()->set_run("r-0123456789");
  EXPECT_FALSE(parse_control_reply(answer.SerializeAsString()));
  answer.mutable_commit()->set_status(pb::COMMIT_FENCED);
  EXPECT_TRUE(parse_control_reply(answer.SerializeAsString()));
  EXPECT_FALSE(parse_control_reply(""));
}

TEST(ControlReply, WhatAPersonReadsIsFiniteAndKnown) {
  const std::function<void(pb::AdminReply&)> spoilers[] = {
      [](auto& r) { r.mutable_runs()->mutable_runs(0)->set_samples_per_second(kNan); },
      [](auto& r) {
        r.mutable_runs()->mutable_runs(0)->mutable_experts(0)->set_samples_per_second(kNan);
      },
      [](auto& r) {
        r.mutable_runs()->mutable_runs(0)->mutable_experts(0)->set_gradient_norm(kNan);
      },
      [](auto& r) { r.mutable_runs()->mutable_runs(0)->mutable_spec()->set_round_seconds(kNan); },
      [](auto& r) {
        r.mutable_runs()->mutable_runs(0)->mutable_spec()->mutable_train()->set_schedule(
            static_cast<pb::Schedule>(9));
      },
      [](auto& r) {
        r.mutable_runs()->mutable_runs(0)->mutable_spec()->mutable_train()->set_kernels(
            static_cast<pb::Kernels>(9));
      },
      [](auto& r) {
        r.mutable_runs()->mutable_runs(0)->mutable_spec()->mutable_train()->set_t_distribution(
            static_cast<pb::TimeDistribution>(9));
      },
      [](auto& r) {
        r.mutable_runs()->mutable_runs(0)->mutable_spec()->mutable_train()->set_state(
            static_cast<pb::StateForm>(9));
      },
      [](auto& r) { r.mutable_nodes()->add_nodes()->set_role(static_cast<pb::Role>(9)); },
      [](auto& r) { r.mutable_tokens()->add_tokens()->set_role(static_cast<pb::Role>(9)); },
  };
  for (const auto& spoil : spoilers) {
    pb::ControlReply reply;
    auto& run = *reply.mutable_admin()->mutable_runs()->add_runs();
    *run.mutable_spec() = good_spec();
    run.add_experts();
    ASSERT_TRUE(parse_control_reply(reply.SerializeAsString()));
    spoil(*reply.mutable_admin());
    EXPECT_FALSE(parse_control_reply(reply.SerializeAsString())) << reply.ShortDebugString();
  }
}

TEST(ControlReply, ObjectsAreChecked) {
  pb::ControlReply reply;
  auto& list = *reply.mutable_admin()->mutable_objects();
  list.add_objects()->mutable_object()->set_manifest(kHash);
  list.mutable_objects(0)->mutable_object()->set_manifest_bytes(10);
  ASSERT_TRUE(parse_control_reply(reply.SerializeAsString()));
  list.mutable_objects(0)->set_expert(-2);
  EXPECT_FALSE(parse_control_reply(reply.SerializeAsString()));
  list.mutable_objects(0)->set_expert(-1);
  list.set_next("short");
  EXPECT_FALSE(parse_control_reply(reply.SerializeAsString()));
  auto& verified = *reply.mutable_admin()->mutable_verified();
  verified.add_damaged(kHash);
  ASSERT_TRUE(parse_control_reply(reply.SerializeAsString()));
  verified.add_damaged("short");
  EXPECT_FALSE(parse_control_reply(reply.SerializeAsString()));
}

TEST(EnrolMessages, FieldsAreChecked) {
  pb::EnrolRequest request;
  *request.mutable_version() = own_version();
  request.set_token_id("0123456789ab");
  request.set_token_secret(kHash);
  request.set_ed25519_key(kHash);
  request.set_signature(std::string(64, 's'));
  ASSERT_TRUE(parse_enrol_request(request.SerializeAsString()));
  const std::function<void(pb::EnrolRequest&)> spoilers[] = {
      [](auto& r) { r.mutable_version()->set_major(9); },
      [](auto& r) { r.set_token_id("?"); },
      [](auto& r) { r.set_token_secret("x"); },
      [](auto& r) { r.set_ed25519_key(""); },
      [](auto& r) { r.set_signature(std::string(63, 's')); },
      [](auto& r) { r.set_name("UPPER"); },
      [](auto& r) { r.set_name(std::string(5000, 'n')); },
  };
  for (const auto& spoil : spoilers) {
    pb::EnrolRequest bad = request;
    spoil(bad);
    EXPECT_FALSE(parse_enrol_request(bad.SerializeAsString()));
  }
  EXPECT_FALSE(parse_enrol_reply(pb::EnrolReply().SerializeAsString()));
}

TEST(BlobMessage, FieldsAreChecked) {
  pb::BlobMessage message;
  message.mutable_request()->set_manifest(kHash);
  message.mutable_request()->set_hash(kHash);
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  message.mutable_request()->set_hash("short");
  EXPECT_FALSE(parse_blob_message(message.SerializeAsString()));
  message.mutable_reply()->set_hash(kHash);
  message.mutable_reply()->set_data(std::string(kChunkBytes, 'd'));
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  message.mutable_reply()->set_missing(true);
  EXPECT_FALSE(parse_blob_message(message.SerializeAsString()));
  message.mutable_reply()->set_missing(false);
  message.mutable_reply()->set_data(std::string(kChunkBytes + 1, 'd'));
  EXPECT_FALSE(parse_blob_message(message.SerializeAsString()));
  EXPECT_FALSE(parse_blob_message(""));
  message.mutable_hello();
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  message.mutable_hello()->mutable_certificate()->set_signature(std::string(64, 's'));
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  message.mutable_hello()->mutable_certificate()->set_body(std::string(kCertificateBytes + 1, 'b'));
  EXPECT_FALSE(parse_blob_message(message.SerializeAsString()));
  message.set_gossip(std::string(kGossipMessageBytes, 'g'));
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  message.set_gossip(std::string(kGossipMessageBytes + 1, 'g'));
  EXPECT_FALSE(parse_blob_message(message.SerializeAsString()));
}

TEST(BlobMessage, MapsAreChecked) {
  pb::BlobMessage message;
  message.mutable_map_request()->set_manifest(kHash);
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  message.mutable_map_request()->set_manifest("short");
  EXPECT_FALSE(parse_blob_message(message.SerializeAsString()));
  pb::ChunkMap& map = *message.mutable_map();
  map.set_manifest(kHash);
  map.set_whole(true);
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  map.set_whole(false);
  map.set_bits(std::string(kMapBytes, '\xff'));
  for (std::size_t i = 0; i < kMapAdded; ++i)
    map.add_added(static_cast<std::uint32_t>(8 * kMapBytes - 1));
  ASSERT_TRUE(parse_blob_message(message.SerializeAsString()));
  const std::vector<std::function<void(pb::ChunkMap&)>> spoilers = {
      [](auto& m) { m.set_manifest("short"); },          [](auto& m) { m.set_whole(true); },
      [](auto& m) { m.mutable_bits()->push_back('x'); }, [](auto& m) { m.add_added(0); },
      [](auto& m) { m.set_added(0, 8 * kMapBytes); },
  };
  for (const auto& spoil : spoilers) {
    pb::BlobMessage bad = message;
    spoil(*bad.mutable_map());
    EXPECT_FALSE(parse_blob_message(bad.SerializeAsString()));
  }
}

TEST(Version, OneMinorAway) {
  pb::Version version = own_version();
  EXPECT_TRUE(compatible(version));
  version.set_minor(kVersionMinor + 1);
  EXPECT_TRUE(compatible(version));
  version.set_minor(kVersionMinor + 2);
  EXPECT_FALSE(compatible(version));
  version = own_version();
  version.set_major(kVersionMajor + 1);
  EXPECT_FALSE(compatible(version));
}

TEST(Errors, KeepTheirCodeOnTheWay) {
  const Error sent = fail(ErrorCode::kFenced, "held by another");
  const Error received = from_message(to_message(sent));
  EXPECT_EQ(received.code, ErrorCode::kFenced);
  EXPECT_EQ(received.message, "held by another");
}

}  // namespace
}  // namespace skerry::protocol
