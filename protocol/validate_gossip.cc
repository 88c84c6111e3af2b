// SPDX-License-Identifier: Apache-2.0
#include "protocol/validate_gossip.h"

#include <algorithm>

#include "protocol/fields.h"
#include "protocol/identity.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "protocol/validate_parts.h"

namespace skerry::protocol {
namespace {

using namespace fields;

constexpr std::size_t kNodeIdBytes = 32;
constexpr std::size_t kFingerprintBytes = 8;
constexpr std::size_t kHoldBytes = 8;
constexpr std::int64_t kUnixMs = std::int64_t{1} << 50;  // some 30,000 years

Result<void> validate_node_id(std::string_view field, std::string_view id) {
  const bool hex = std::ranges::all_of(
      id, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (id.size() == kNodeIdBytes && hex) return {};
  return bad(field, "32 hex digits", text('"', id.substr(0, kNodeIdBytes + 1), '"'));
}

Result<void> validate_heads(std::string_view field, const pb::HeadList& heads) {
  TRY(count_at_most(field, heads.position_size(), kGossipHeads));
  if (heads.incarnation_size() == heads.position_size() &&
      heads.counter_size() == heads.position_size() &&
      heads.stamp_size() == heads.position_size()) {
    return {};
  }
  return bad(field, "four lists of one length", "others");
}

Result<void> validate_signed(const pb::SignedRecord& record) {
  TRY(text_at_most("record.body", record.body(), kRecordBytes));
  TRY(length("record.signature", record.signature(), kSignatureBytes));
  TRY(text_at_most("record.certificate.body", record.certificate().body(), kCertificateBytes));
  if (record.has_certificate()) {
    TRY(length("record.certificate.signature", record.certificate().signature(), kSignatureBytes));
  }
  return in_range<std::uint64_t>("record.age_ms", record.age_ms(), 0, kRecordLifetimeMs);
}

Result<void> validate_object(std::string_view field, const pb::ObjectRef& object) {
  auto checked = parts::validate(object);
  if (checked) return {};
  return fail(ErrorCode::kInvalid, text(field, ": ", checked.error().message));
}

Result<void> validate_fact(const pb::NodeRecord& node) {
  TRY(text_at_most("node.address", node.address(), kRecordTextBytes));
  if (!node.address().empty() && !node.address().starts_with("tcp://")) {
    return bad("node.address", "tcp://HOST:PORT", text('"', node.address(), '"'));
  }
  TRY(text_at_most("node.host_label", node.host_label(), kRecordTextBytes));
  TRY(parts::validate_slots(node.slots()));
  for (const pb::Slot& slot : node.slots())
    TRY(text_at_most("slot.device", slot.device(), kRecordTextBytes));
  if (node.holds().size() % kHoldBytes == 0 && node.holds().size() <= kRecordHolds * kHoldBytes)
    return {};
  return bad("node.holds", text("8 bytes for each of at most ", kRecordHolds, " objects"),
             text(node.holds().size(), " bytes"));
}

Result<void> validate_fact(const pb::ExpertRecord& expert) {
  TRY(in_range<std::uint64_t>("expert.round", expert.round(), 0, kSteps));
  TRY(in_range<std::uint64_t>("expert.step", expert.step(), 1, kSteps));
  TRY(validate_object("expert.checkpoint", expert.checkpoint()));
  TRY(finite("expert.loss", expert.loss()));
  TRY(not_negative("expert.share", expert.share()));
  TRY(in_range("expert.share", expert.share(), 0.0, 1.0));
  if (!expert.has_statistics()) return {};
  return validate_object("expert.statistics", expert.statistics());
}

Result<void> validate_fact(const pb::RunRecord& run) {
  TRY(validate_name(run.name(), "run.name"));
  TRY(validate_name(run.dataset(), "run.dataset"));
  TRY(in_range<std::uint32_t>("run.experts", run.experts(), 1,
                              kPartitions + 1));  // and the router's job
  TRY(count_at_most("run.without", run.without_size(), run.experts()));
  for (int i = 0; i < run.without_size(); ++i) {
    const std::uint32_t least = i == 0 ? 0 : run.without(i - 1) + 1;
    if (run.without(i) < least || run.without(i) >= run.experts()) {
      return bad("run.without", "growing numbers of experts", text(run.without(i)));
    }
  }
  if (run.trains_router() &&
      (run.without_size() == 0 || run.without(run.without_size() - 1) + 1 != run.experts())) {
    return bad("run.without", "the router's job as its last", text(run.without_size(), " others"));
  }
  TRY(validate_object("run.spec", run.spec()));
  if (!run.has_router()) return {};
  return validate_object("run.router", run.router());
}

// The fields of the record's key, present even in a withdrawn record.
Result<void> validate_key(const pb::RecordBody& body) {
  switch (body.fact_case()) {
    case pb::RecordBody::kNode:
      return {};
    case pb::RecordBody::kExpert:
      TRY(validate_name(body.expert().run(), "expert.run"));
      return in_range<std::uint32_t>("expert.expert", body.expert().expert(), 0,
                                     kPartitions);  // the router's
    case pb::RecordBody::kRun:
      return validate_name(body.run().run(), "run.run");
    case pb::RecordBody::kRevocation:
      return validate_node_id("revocation.node_id", body.revocation().node_id());
    case pb::RecordBody::FACT_NOT_SET:
      break;
  }
  return fail(ErrorCode::kInvalid, "record: of a kind that this version does not know");
}

Result<void> validate_fact(const pb::RecordBody& body) {
  if (body.has_node()) return validate_fact(body.node());
  if (body.has_expert()) return validate_fact(body.expert());
  if (body.has_run()) return validate_fact(body.run());
  return {};
}

}  // namespace

Result<void> validate_gossip_message(const pb::GossipMessage& message) {
  TRY(validate_heads("offer", message.offer()));
  TRY(length_or_empty("digest", message.digest(), kGossipBuckets * kFingerprintBytes));
  TRY(count_at_most("listings", message.listings_size(), kGossipListings));
  int heads = 0;
  for (const pb::Listing& listing : message.listings()) {
    TRY(validate_heads("listing.heads", listing.heads()));
    if (listing.first() > listing.last()) return bad("listing.last", "first or more", "less");
    heads += listing.heads().position_size();
    TRY(count_at_most("listings' heads", heads, kGossipHeads));
  }
  TRY(count_at_most("wants", message.wants_size(), kGossipWants));
  TRY(count_at_most("records", message.records_size(), kGossipMessageRecords));
  for (const pb::SignedRecord& record : message.records()) TRY(validate_signed(record));
  return {};
}

Result<pb::GossipMessage> parse_gossip_message(std::string_view bytes) {
  if (bytes.size() > kGossipMessageBytes) {
    return bad("gossip message", text("at most ", kGossipMessageBytes, " bytes"),
               text(bytes.size(), " bytes"));
  }
  pb::GossipMessage message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(ErrorCode::kInvalid, "gossip message: not a message of this protocol");
  }
  TRY(validate_gossip_message(message));
  return message;
}

Result<pb::RecordBody> parse_record_body(std::string_view bytes) {
  TRY(text_at_most("record.body", bytes, kRecordBytes));
  pb::RecordBody body;
  if (!body.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return fail(ErrorCode::kInvalid, "record: not a record of this protocol");
  }
  TRY(validate_node_id("record.author", body.author()));
  TRY(in_range<std::uint64_t>("record.incarnation", body.incarnation(), 0, kRecordVersion));
  TRY(in_range<std::uint64_t>("record.counter", body.counter(), 1, kRecordVersion));
  TRY(in_range<std::int64_t>("record.issued_unix_ms", body.issued_unix_ms(), -kUnixMs, kUnixMs));
  TRY(in_range<std::uint64_t>("record.lifetime_ms", body.lifetime_ms(), kRecordLifetimeLeastMs,
                              kRecordLifetimeMs));
  TRY(validate_key(body));
  if (!body.withdrawn()) TRY(validate_fact(body));
  return body;
}

}  // namespace skerry::protocol
