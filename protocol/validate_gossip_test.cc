// SPDX-License-Identifier: Apache-2.0
#include "protocol/validate_gossip.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "protocol/limits.h"

namespace skerry::protocol {
namespace {

const std::string kHash(32, 'h');

void fill(pb::ObjectRef& object) {
  object.set_manifest(kHash);
  object.set_manifest_bytes(100);
}

pb::RecordBody good_body() {
  pb::RecordBody body;
  body.set_author(std::string(32, 'a'));
  body.set_incarnation(1);
  body.set_counter(1);
  body.set_issued_unix_ms(1'700'000'000'000);
  body.set_lifetime_ms(86'400'000);
  return body;
}
pb::RecordBody node() {
  pb::RecordBody body = good_body();
  body.mutable_node()->set_address("tcp://10.0.0.1:7610");
  body.mutable_node()->add_slots()->set_device("cpu");
  body.mutable_node()->set_holds(std::string(16, 'x'));
  return body;
}
pb::RecordBody expert() {
  pb::RecordBody body = good_body();
  body.mutable_expert()->set_run("r-0123456789");
  body.mutable_expert()->set_step(10);
  body.mutable_expert()->set_share(0.25);
  fill(*body.mutable_expert()->mutable_checkpoint());
  fill(*body.mutable_expert()->mutable_statistics());
  return body;
}
pb::RecordBody run() {
  pb::RecordBody body = good_body();
  body.mutable_run()->set_run("r-0123456789");
  body.mutable_run()->set_name("birds");
  body.mutable_run()->set_dataset("birds");
  body.mutable_run()->set_experts(4);
  body.mutable_run()->add_without(1);
  body.mutable_run()->add_without(3);
  fill(*body.mutable_run()->mutable_spec());
  fill(*body.mutable_run()->mutable_router());
  return body;
}
pb::RecordBody revocation() {
  pb::RecordBody body = good_body();
  body.mutable_revocation()->set_node_id(std::string(32, 'b'));
  return body;
}

struct Case {
  const char* names;  // what the message must name
  pb::RecordBody (*good)();
  std::function<void(pb::RecordBody&)> spoil;
};

const Case kCases[] = {
    {"record.author", node, [](auto& b) { b.set_author("me"); }},
    {"record.author", node, [](auto& b) { b.set_author(std::string(32, 'G')); }},
    {"record.incarnation", node, [](auto& b) { b.set_incarnation(kRecordVersion + 1); }},
    {"record.counter", node, [](auto& b) { b.set_counter(0); }},
    {"record.counter", node, [](auto& b) { b.set_counter(kRecordVersion + 1); }},
    {"record.issued_unix_ms", node,
     [](auto& b) { b.set_issued_unix_ms(std::numeric_limits<std::int64_t>::min()); }},
    {"record.lifetime_ms", node, [](auto& b) { b.set_lifetime_ms(kRecordLifetimeLeastMs - 1); }},
    {"record.lifetime_ms", node, [](auto& b) { b.set_lifetime_ms(kRecordLifetimeMs + 1); }},
    {"record", node, [](auto& b) { b.clear_fact(); }},
    {"node.address", node, [](auto& b) { b.mutable_node()->set_address("ipc:///tmp/x"); }},
    {"node.address", node,
     [](auto& b) { b.mutable_node()->set_address("tcp://" + std::string(130, 'h')); }},
    {"node.host_label", node,
     [](auto& b) { b.mutable_node()->set_host_label(std::string(129, 'h')); }},
    {"slots", node,
     [](auto& b) {
       for (int i = 0; i < 65; ++i) b.mutable_node()->add_slots();
     }},
    {"slot.device", node,
     [](auto& b) { b.mutable_node()->mutable_slots(0)->set_device(std::string(129, 'd')); }},
    {"node.holds", node, [](auto& b) { b.mutable_node()->set_holds("short"); }},
    {"node.holds", node,
     [](auto& b) { b.mutable_node()->set_holds(std::string(8 * (kRecordHolds + 1), 'x')); }},
    {"expert.run", expert, [](auto& b) { b.mutable_expert()->set_run("../x"); }},
    {"expert.expert", expert, [](auto& b) { b.mutable_expert()->set_expert(kPartitions + 1); }},
    {"expert.round", expert, [](auto& b) { b.mutable_expert()->set_round(kSteps + 1); }},
    {"expert.step", expert, [](auto& b) { b.mutable_expert()->set_step(0); }},
    {"expert.checkpoint", expert, [](auto& b) { b.mutable_expert()->clear_checkpoint(); }},
    {"expert.loss", expert,
     [](auto& b) { b.mutable_expert()->set_loss(std::numeric_limits<double>::quiet_NaN()); }},
    {"expert.share", expert, [](auto& b) { b.mutable_expert()->set_share(1.5); }},
    {"expert.share", expert, [](auto& b) { b.mutable_expert()->set_share(-0.5); }},
    {"expert.statistics", expert,
     [](auto& b) { b.mutable_expert()->mutable_statistics()->set_manifest("short"); }},
    {"run.run", run, [](auto& b) { b.mutable_run()->clear_run(); }},
    {"run.name", run, [](auto& b) { b.mutable_run()->set_name("A B"); }},
    {"run.dataset", run, [](auto& b) { b.mutable_run()->set_dataset(""); }},
    {"run.experts", run, [](auto& b) { b.mutable_run()->set_experts(0); }},
    {"run.experts", run, [](auto& b) { b.mutable_run()->set_experts(kPartitions + 2); }},
    {"run.without", run, [](auto& b) { b.mutable_run()->set_without(1, 4); }},
    {"run.without", run, [](auto& b) { b.mutable_run()->set_without(1, 1); }},
    {"run.without", run,
     [](auto& b) {
       b.mutable_run()->set_experts(5);  // the last of which is not among them
       b.mutable_run()->set_trains_router(true);
     }},
    {"run.without", run,
     [](auto& b) {
       for (int i = 0; i < 3; ++i) b.mutable_run()->add_without(3);
     }},
    {"run.spec", run, [](auto& b) { b.mutable_run()->clear_spec(); }},
    {"run.router", run, [](auto& b) { b.mutable_run()->mutable_router()->set_manifest_bytes(0); }},
    {"revocation.node_id", revocation, [](auto& b) { b.mutable_revocation()->set_node_id("all"); }},
};

TEST(RecordBody, BadFieldsAreRefusedByName) {
  for (const Case& one : kCases) {
    pb::RecordBody body = one.good();
    const auto good = parse_record_body(body.SerializeAsString());
    ASSERT_TRUE(good) << one.names << ": " << good.error().message;
    one.spoil(body);
    const auto bad = parse_record_body(body.SerializeAsString());
    ASSERT_FALSE(bad) << one.names;
    EXPECT_EQ(bad.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(bad.error().message.starts_with(one.names))
        << one.names << " / " << bad.error().message;
  }
}

TEST(RecordBody, WithdrawnNeedsItsKeyOnly) {
  pb::RecordBody body = good_body();
  body.set_withdrawn(true);
  body.mutable_expert()->set_run("r-0123456789");
  EXPECT_TRUE(parse_record_body(body.SerializeAsString()));
  body.mutable_expert()->clear_run();
  EXPECT_FALSE(parse_record_body(body.SerializeAsString()));
}

TEST(RecordBody, GarbageAndSizeAreRefused) {
  EXPECT_FALSE(parse_record_body(""));
  EXPECT_FALSE(parse_record_body("\xff\xff\xff\xff"));
  EXPECT_FALSE(parse_record_body(std::string(kRecordBytes + 1, '\0')));
}

pb::GossipMessage good_message() {
  pb::GossipMessage message;
  for (pb::HeadList* heads : {message.mutable_offer(), message.add_listings()->mutable_heads()}) {
    heads->add_position(1);
    heads->add_incarnation(1);
    heads->add_counter(1);
    heads->add_stamp(1);
  }
  message.set_digest(std::string(8 * kGossipBuckets, 'd'));
  message.add_wants(1);
  pb::SignedRecord& record = *message.add_records();
  record.set_body("anything");
  record.set_signature(std::string(64, 's'));
  record.mutable_certificate()->set_signature(std::string(64, 's'));
  return message;
}

TEST(GossipMessage, FieldsAreChecked) {
  ASSERT_TRUE(parse_gossip_message(good_message().SerializeAsString()));
  ASSERT_TRUE(parse_gossip_message(""));
  const std::pair<const char*, std::function<void(pb::GossipMessage&)>> spoilers[] = {
      {"offer", [](auto& m) { m.mutable_offer()->add_stamp(2); }},
      {"offer",
       [](auto& m) {
         for (std::size_t i = 0; i < kGossipHeads; ++i) m.mutable_offer()->add_position(i);
       }},
      {"digest", [](auto& m) { m.set_digest("short"); }},
      {"listings",
       [](auto& m) {
         for (std::size_t i = 0; i < kGossipListings; ++i) m.add_listings();
       }},
      {"listing.heads", [](auto& m) { m.mutable_listings(0)->mutable_heads()->clear_counter(); }},
      {"listing.last", [](auto& m) { m.mutable_listings(0)->set_first(1); }},
      {"listings' heads",
       [](auto& m) {
         for (int l = 0; l < 2; ++l) {
           pb::HeadList& heads = *m.add_listings()->mutable_heads();
           for (std::size_t i = 0; i < kGossipHeads / 2; ++i) {
             heads.add_position(i);
             heads.add_incarnation(i);
             heads.add_counter(i);
             heads.add_stamp(i);
           }
         }
       }},
      {"wants",
       [](auto& m) {
         for (std::size_t i = 0; i < kGossipWants; ++i) m.add_wants(i);
       }},
      {"records",
       [](auto& m) {
         for (std::size_t i = 0; i < kGossipMessageRecords; ++i) *m.add_records() = m.records(0);
       }},
      {"record.body",
       [](auto& m) { m.mutable_records(0)->set_body(std::string(kRecordBytes + 1, 'b')); }},
      {"record.signature", [](auto& m) { m.mutable_records(0)->clear_signature(); }},
      {"record.certificate.body",
       [](auto& m) {
         m.mutable_records(0)->mutable_certificate()->set_body(
             std::string(kCertificateBytes + 1, 'b'));
       }},
      {"record.certificate.signature",
       [](auto& m) { m.mutable_records(0)->mutable_certificate()->clear_signature(); }},
      {"record.age_ms", [](auto& m) { m.mutable_records(0)->set_age_ms(kRecordLifetimeMs + 1); }},
  };
  for (const auto& [names, spoil] : spoilers) {
    pb::GossipMessage bad = good_message();
    spoil(bad);
    const auto parsed = parse_gossip_message(bad.SerializeAsString());
    ASSERT_FALSE(parsed) << names;
    EXPECT_TRUE(parsed.error().message.starts_with(names))
        << names << " / " << parsed.error().message;
  }
  EXPECT_FALSE(parse_gossip_message("\xff\xff\xff\xff"));
  EXPECT_FALSE(parse_gossip_message(std::string(kGossipMessageBytes + 1, '\0')));
}

}  // namespace
}  // namespace skerry::protocol
