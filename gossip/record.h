// SPDX-License-Identifier: Apache-2.0
// A signed record as a value: what names it, which of two is newer, and the
// making of one.
//
// Values are immutable and shared: one Record in memory however many tables
// hold it.
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

// In the order of what is kept when a table is full: the first ones longest.
enum class Kind { kRevocation, kRun, kNode, kExpert };
const char* to_string(Kind kind);

// What a record is about, and who says so. Each author speaks for itself: two
// nodes may have a record of one expert.
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

// Where a key stands in a table. A node's records stand side by side (its upper
// half is the node's), the coordinator's are spread.
using Position = std::uint64_t;
Position position_of(const Key& key, bool by_coordinator);
// The range of positions in which everything of a node lies.
struct Range {
  Position first = 0;
  Position last = ~Position{0};
};
Range range_of_node(const NodeId& node);

// Of two records with one key the greater counts. The hash decides between two
// of one version, which only a broken or a lying author makes: everyone decides
// alike.
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
  pb::SignedRecord wire;  // as it travels, without its age
  pb::RecordBody body;
  Key key;
  Version version;
  Position position = 0;
  bool by_coordinator = false;
  std::int64_t certificate_until_unix_ms = 0;
  std::size_t bytes = 0;  // about what it takes

  Duration lifetime() const { return std::chrono::milliseconds(body.lifetime_ms()); }
};
using RecordPtr = std::shared_ptr<const Record>;

// The name and keys that the coordinator gave its author; empty where there is
// no certificate.
pb::CertificateBody certified(const Record& record);

// Opens what came, without looking at its signature. kInvalid where it is no
// record of this version.
Result<Record> open_record(const pb::SignedRecord& wire, const NodeId& coordinator);

// What its author hands out: `body` has a fact, version, times; author and
// signature are put in here. kInvalid where the fact breaks a limit of
// protocol/limits.h.
Result<pb::SignedRecord> sign_record(pb::RecordBody body, const protocol::Signer& author,
                                     const pb::Certificate& certificate);

}  // namespace skerry::gossip
