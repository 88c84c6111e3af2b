// SPDX-License-Identifier: Apache-2.0
#include "gossip/verifier.h"

#include <limits>
#include <utility>

#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::gossip {
namespace {

// The checks that the certificate's signature does not cover.
Result<void> may_say(const Record& record) {
  if (record.by_coordinator) return {};
  if (record.key.kind == Kind::kRun || record.key.kind == Kind::kRevocation) {
    return fail(ErrorCode::kCorrupt,
                text(describe(record.key), ": only the coordinator may say such a thing"));
  }
  if (record.body.lifetime_ms() > protocol::kNodeLifetimeMs) {
    return fail(ErrorCode::kCorrupt,
                text(describe(record.key), ": lives longer than a node's record may"));
  }
  return {};
}

}  // namespace

Verifier::Verifier(std::string coordinator_key, std::size_t remembered, SignatureChecks checks)
    : coordinator_key_(std::move(coordinator_key)),
      coordinator_(protocol::node_id(coordinator_key_)),
      most_(remembered),
      checks_(std::move(checks)) {}

RecordPtr Verifier::find(const Hash& body) const {
  for (const Known* known : {&fresh_, &old_}) {
    if (const auto found = known->by_body.find(body); found != known->by_body.end())
      return found->second;
  }
  return nullptr;
}

RecordPtr Verifier::find(const pb::SignedRecord& wire) const {
  for (const Known* known : {&fresh_, &old_}) {
    const auto found = known->by_signature.find(wire.signature());
    if (found != known->by_signature.end() && found->second->wire.body() == wire.body())
      return found->second;
  }
  return find(blake2b(wire.body()));
}

Result<RecordPtr> Verifier::open(const pb::SignedRecord& wire) const {
  if (RecordPtr known = find(wire)) return known;
  ASSIGN_OR_RETURN(Record record, open_record(wire, coordinator_));
  return RecordPtr(std::make_shared<const Record>(std::move(record)));
}

Result<const Verifier::Holder*> Verifier::holder_of(const pb::Certificate& certificate,
                                                    const NodeId& author) {
  const std::string name = text(certificate.body(), certificate.signature());
  auto found = keys_.find(name);
  if (found == keys_.end()) {
    ++signatures_checked_;
    // Expiry depends on the clock, so the code below checks it each time.
    const auto body = checks_.of_certificate(certificate, coordinator_key_,
                                             std::numeric_limits<std::int64_t>::min());
    if (!body) return fail(ErrorCode::kCorrupt, body.error().message);
    if (body->role() != pb::ROLE_NODE) {
      return fail(ErrorCode::kCorrupt, text(body->node_id(), " is enrolled, but not as a node"));
    }
    if (keys_.size() >= most_) keys_.clear();
    found = keys_
                .emplace(name, Holder{body->ed25519_key(), protocol::node_id(body->ed25519_key()),
                                      body->expires_unix_ms()})
                .first;
  }
  if (found->second.id != author) {
    return fail(ErrorCode::kCorrupt, text("the certificate is not of ", author, ", the author"));
  }
  return &found->second;
}

Result<std::string> Verifier::key_of(Record& record) {
  if (record.by_coordinator) {
    record.certificate_until_unix_ms = std::numeric_limits<std::int64_t>::max();
    return coordinator_key_;
  }
  ASSIGN_OR_RETURN(const Holder* holder, holder_of(record.wire.certificate(), record.key.author));
  record.certificate_until_unix_ms = holder->until_unix_ms;
  return holder->key;
}

Result<RecordPtr> Verifier::check(RecordPtr opened, std::int64_t now_unix_ms) {
  RecordPtr known = find(opened->version.body);
  if (known == nullptr) {
    Record record = *opened;
    ASSIGN_OR_RETURN(const std::string key, key_of(record));
    ++signatures_checked_;
    const bool is_signed =
        checks_.of_key(key, protocol::kRecordDomain, record.wire.body(), record.wire.signature());
    if (!is_signed) {
      return fail(ErrorCode::kCorrupt,
                  text(describe(record.key), ": the signature is not the author's"));
    }
    TRY(may_say(record));
    known = std::make_shared<const Record>(std::move(record));
    if (fresh_.by_body.size() >= most_) old_ = std::exchange(fresh_, {});
    fresh_.by_body.emplace(known->version.body, known);
    fresh_.by_signature.emplace(known->wire.signature(), known);
  }
  const std::int64_t slack_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(kClockSlack).count();
  if (now_unix_ms - slack_ms >= known->certificate_until_unix_ms) {
    return fail(ErrorCode::kUnauthorised,
                text(describe(known->key), ": its author's certificate is over"));
  }
  return known;
}

}  // namespace skerry::gossip
