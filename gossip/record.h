// SPDX-License-Identifier: Apache-2.0
// A signed record as a value: its key, its version, how to open it and how to
// sign one.
//
// Values are immutable and shared: one Record in memory for all tables that
// hold it.
// THREADS: any.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "protocol/gossip.pb.h"
#include "protocol/identity.h"

namespace skerry::gossip {

// In order of importance: a full table keeps the first kinds longest.
enum class Kind { kRevocation, kRun, kNode, kExpert };
const char* to_string(Kind kind);

// The subject of a record, and its author. Two nodes may each have a record
// about one expert.
struct Key {
  Kind kind = Kind::kNode;
  NodeId author;
  RunId run;  // of a run or an expert
  ExpertIndex expert = 0;
  NodeId subject;  // of a revocation
  auto operator<=>(const Key&) const = default;
};
// For people: "expert r-0123456789/3 by 0a1b…".
std::string describe(const Key& key);

// Where a key stands in a table. All records of a node are neighbours: the
// upper half of a position comes from the node. The coordinator's are spread
// over all positions.
using Position = std::uint64_t;
Position position_of(const Key& key, bool by_coordinator);
// The range of positions that holds all records of a node.
struct Range {
  Position first = 0;
  Position last = ~Position{0};
};
Range range_of_node(const NodeId& node);

// Of two records with one key the greater version wins. The hash decides
// between two bodies of one number, which only a faulty or lying author signs.
// So every node decides the same way.
struct Version {
  std::uint64_t incarnation = 0;
  std::uint64_t counter = 0;
  Hash body;
  auto operator<=>(const Version&) const = default;
  std::uint64_t stamp() const { return body.first_word(); }
  bool same_number(const Version& other) const {
    return incarnation == other.incarnation && counter == other.counter;
  }
};

struct Record {
  pb::SignedRecord wire;  // as messages carry it, without its age
  pb::RecordBody body;
  Key key;
  Version version;
  Position position = 0;
  bool by_coordinator = false;
  std::int64_t certificate_until_unix_ms = 0;
  std::size_t bytes = 0;  // memory that it takes, approximately

  Duration lifetime() const { return std::chrono::milliseconds(body.lifetime_ms()); }
};
using RecordPtr = std::shared_ptr<const Record>;

// RETURNS: the name and keys that the coordinator gave the author; empty if
// there is no certificate.
pb::CertificateBody certified(const Record& record);

// Parses a received record without checking its signature.
// ON FAILURE: kInvalid if it is no record of this version.
Result<Record> open_record(const pb::SignedRecord& wire, const NodeId& coordinator);

// Signs a record: adds author and signature. `body` has a fact, version and
// times.
// ON FAILURE: kInvalid if the fact breaks a limit of protocol/limits.h.
Result<pb::SignedRecord> sign_record(pb::RecordBody body, const protocol::Signer& author,
                                     const pb::Certificate& certificate);

}  // namespace skerry::gossip
