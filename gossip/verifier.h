// SPDX-License-Identifier: Apache-2.0
// Says whether a record is genuine: signed by the key of a certificate that the
// coordinator signed, about something its author may speak of. What was found
// genuine is remembered, so that each signature is checked once per process
// however often its record comes.
//
// Whether the author is revoked, the record newer or still alive is the table's
// business. Thread rule: one thread. Memory is bounded by the constructor's
// numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gossip/record.h"

namespace skerry::gossip {

// Clocks may be apart by this much in all: author and receiver each an hour.
inline constexpr Duration kClockSlack = std::chrono::hours(2);

// How signatures are checked: those of an Identity. A simulation has a cheaper
// way, for its own Signer.
struct SignatureChecks {
  std::function<bool(std::string_view key, std::string_view domain, std::string_view bytes,
                     std::string_view signature)>
      of_key = protocol::verify_signature;
  std::function<Result<pb::CertificateBody>(
      const pb::Certificate&, std::string_view coordinator_key, std::int64_t now_unix_ms)>
      of_certificate = protocol::verify_certificate;
};

class Verifier {
 public:
  explicit Verifier(std::string coordinator_key, std::size_t remembered = 8192,
                    SignatureChecks checks = {});

  const NodeId& coordinator() const { return coordinator_; }

  // Opened but not yet checked; or checked earlier, which costs next to
  // nothing. kInvalid as open_record.
  Result<RecordPtr> open(const pb::SignedRecord& wire) const;
  // kCorrupt where a signature is wrong or its author may not say this: whoever
  // handed it on has not checked it, or made it up. kUnauthorised where the
  // certificate is over (by more than the slack), which two clocks may see
  // differently.
  Result<RecordPtr> check(RecordPtr opened, std::int64_t now_unix_ms);

  std::uint64_t signatures_checked() const { return signatures_checked_; }
  std::size_t remembered() const {
    return fresh_.by_body.size() + old_.by_body.size() + keys_.size();
  }

 private:
  struct Holder {
    std::string key;
    NodeId id;  // the key's
    std::int64_t until_unix_ms = 0;
  };

  // What was found genuine. Whoever hands a record on hands on its signature
  // too, and to compare bodies is quicker than to hash.
  struct Known {
    std::unordered_map<Hash, RecordPtr> by_body;
    std::unordered_map<std::string_view, RecordPtr> by_signature;  // its own, held by the record
  };

  RecordPtr find(const Hash& body) const;
  RecordPtr find(const pb::SignedRecord& wire) const;
  // Valid until the next call.
  Result<const Holder*> holder_of(const pb::Certificate& certificate, const NodeId& author);
  Result<std::string> key_of(Record& record);

  std::string coordinator_key_;
  NodeId coordinator_;
  std::size_t most_;
  SignatureChecks checks_;
  Known fresh_;  // full: becomes the old one
  Known old_;
  std::unordered_map<std::string, Holder>
      keys_;  // by the certificate's body and signature; full: emptied
  std::uint64_t signatures_checked_ = 0;
};

}  // namespace skerry::gossip
