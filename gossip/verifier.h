// SPDX-License-Identifier: Apache-2.0
// Checks whether a record is genuine. The key that signed it must have a
// certificate signed by the coordinator, and its author may speak of the
// subject. It remembers genuine records, so a process checks each signature
// once, however often the record comes.
//
// The table decides whether the author is revoked, and whether the record is
// newer or still alive.
// Memory is bounded by the numbers that the constructor gets.
// THREADS: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gossip/record.h"

namespace skerry::gossip {

// The most that two clocks may differ: author and receiver one hour each.
inline constexpr Duration kClockSlack = std::chrono::hours(2);

// How to check signatures; by default as an Identity signs. A simulation has a
// cheaper way, for its own Signer.
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

  // RETURNS: the record, opened but not yet checked; or one checked earlier,
  // which costs next to nothing.
  // ON FAILURE: kInvalid, as open_record().
  Result<RecordPtr> open(const pb::SignedRecord& wire) const;
  // Checks an opened record.
  // ON FAILURE: kCorrupt if a signature is wrong or its author may not state
  // this. The sending peer did not check it, or forged it.
  // A certificate that expired more than the slack ago gives kUnauthorised; two
  // clocks may disagree about that.
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

  // Genuine records. A record travels with its signature, and comparing bodies
  // is faster than hashing them.
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
  // by the certificate's body and signature; emptied when full
  std::unordered_map<std::string, Holder> keys_;
  std::uint64_t signatures_checked_ = 0;
};

}  // namespace skerry::gossip
