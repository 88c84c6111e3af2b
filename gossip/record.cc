// SPDX-License-Identifier: Apache-2.0
#include "gossip/record.h"

#include "base/text.h"
#include "protocol/validate_gossip.h"

namespace skerry::gossip {
namespace {

constexpr int kNodeBits = 32;

Position upper_half(const NodeId& node) {
  const std::string bytes =
      from_hex(node.str().substr(0, kNodeBits / 4)).value_or(std::string(4, '\0'));
  Position value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value << kNodeBits;
}

Key key_of(const pb::RecordBody& body) {
  Key key;
  key.author = NodeId(body.author());
  if (body.has_expert()) {
    key.kind = Kind::kExpert;
    key.run = RunId(body.expert().run());
    key.expert = body.expert().expert();
  } else if (body.has_run()) {
    key.kind = Kind::kRun;
    key.run = RunId(body.run().run());
  } else if (body.has_revocation()) {
    key.kind = Kind::kRevocation;
    key.subject = NodeId(body.revocation().node_id());
  }
  return key;
}

}  // namespace

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kRevocation:
      return "revocation";
    case Kind::kRun:
      return "run";
    case Kind::kNode:
      return "node";
    case Kind::kExpert:
      return "expert";
  }
  return "unknown";
}

std::string describe(const Key& key) {
  std::string words(to_string(key.kind));
  if (key.kind == Kind::kExpert)
    words.append(" ").append(key.run.str()).append("/").append(std::to_string(key.expert));
  if (key.kind == Kind::kRun) words.append(" ").append(key.run.str());
  if (key.kind == Kind::kRevocation) words.append(" of ").append(key.subject.str());
  return words.append(" by ").append(key.author.str());
}

Position position_of(const Key& key, bool by_coordinator) {
  const Position hashed = blake2b(describe(key)).first_word();
  if (by_coordinator) return hashed;
  return upper_half(key.author) | (hashed & ((Position{1} << kNodeBits) - 1));
}

Range range_of_node(const NodeId& node) {
  const Position first = upper_half(node);
  return {first, first | ((Position{1} << kNodeBits) - 1)};
}

pb::CertificateBody certified(const Record& record) {
  pb::CertificateBody body;
  if (!body.ParseFromString(record.wire.certificate().body())) body.Clear();
  return body;
}

Result<Record> open_record(const pb::SignedRecord& wire, const NodeId& coordinator) {
  Record record;
  ASSIGN_OR_RETURN(record.body, protocol::parse_record_body(wire.body()));
  record.wire = wire;
  record.wire.clear_age_ms();
  record.key = key_of(record.body);
  record.by_coordinator = record.key.author == coordinator;
  record.version = {record.body.incarnation(), record.body.counter(), blake2b(wire.body())};
  record.position = position_of(record.key, record.by_coordinator);
  record.bytes = sizeof(Record) + 2 * record.wire.ByteSizeLong();
  return record;
}

Result<pb::SignedRecord> sign_record(pb::RecordBody body, const protocol::Signer& author,
                                     const pb::Certificate& certificate) {
  body.set_author(author.node_id().str());
  pb::SignedRecord wire;
  wire.set_body(body.SerializeAsString());
  TRY(protocol::parse_record_body(wire.body()));
  wire.set_signature(author.sign(protocol::kRecordDomain, wire.body()));
  if (!certificate.body().empty()) *wire.mutable_certificate() = certificate;
  return wire;
}

}  // namespace skerry::gossip
