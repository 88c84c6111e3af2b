// SPDX-License-Identifier: Apache-2.0
#include "gossip/record.h"

#include <gtest/gtest.h>

#include "gossip/testing/testing.h"

namespace skerry::gossip {
namespace {

const Author kCoordinator(0);
const Author kAnna(1);
const Author kBert(2);

ErrorCode refusal(Verifier& verifier, const pb::SignedRecord& wire,
                  std::int64_t now_unix_ms = kToday) {
  const auto checked = verifier.check(value_of(verifier.open(wire)), now_unix_ms);
  EXPECT_FALSE(checked);
  return checked ? ErrorCode::kInvalid : checked.error().code;
}

TEST(Record, IsOpenedAsItWasSigned) {
  const pb::SignedRecord wire = kAnna.sign(expert_fact("r-1", 3, 100, "a"), 7);
  const Record record = value_of(open_record(wire, kCoordinator.id()));
  EXPECT_EQ(record.key,
            (Key{.kind = Kind::kExpert, .author = kAnna.id(), .run = RunId("r-1"), .expert = 3}));
  EXPECT_EQ(record.version.counter, 7U);
  EXPECT_EQ(record.lifetime(), 24h);
  EXPECT_FALSE(record.by_coordinator);
  EXPECT_FALSE(sign_record(expert_fact("../r", 3, 100, "a"), kAnna.identity, kAnna.certificate));
}

TEST(Record, ANodesRecordsStandSideBySide) {
  const Range anna = range_of_node(kAnna.id());
  for (ExpertIndex i = 0; i < 20; ++i) {
    const Key key{.kind = Kind::kExpert, .author = kAnna.id(), .run = RunId("r-1"), .expert = i};
    EXPECT_GE(position_of(key, false), anna.first);
    EXPECT_LE(position_of(key, false), anna.last);
  }
}

TEST(Record, LaterIncarnationThenCounterThenHash) {
  Version a{.incarnation = 2, .counter = 1}, b{.incarnation = 1, .counter = 9};
  EXPECT_GT(a, b);
  b.incarnation = 2;
  EXPECT_LT(a, b);
  b.counter = 1;
  EXPECT_TRUE(a.same_number(b));
  b.body.bytes[31] = 1;
  EXPECT_LT(a, b);
}

TEST(Verifier, TakesWhatIsGenuineAndChecksItOnce) {
  Verifier verifier(kCoordinator.identity.ed25519_key());
  const pb::SignedRecord node = kAnna.sign(node_fact("tcp://h:1"), 1);
  EXPECT_EQ(genuine(verifier, node)->key.author, kAnna.id());
  EXPECT_EQ(verifier.signatures_checked(), 2U);
  genuine(verifier, node);
  EXPECT_EQ(verifier.signatures_checked(), 2U);
  genuine(verifier, kAnna.sign(node_fact("tcp://h:1"), 2));
  EXPECT_EQ(verifier.signatures_checked(), 3U) << "the certificate was checked already";
  pb::SignedRecord other = kAnna.sign(node_fact("tcp://h:1"), 3);
  other.set_signature(node.signature());
  EXPECT_EQ(refusal(verifier, other), ErrorCode::kCorrupt) << "a known signature under other words";
  EXPECT_TRUE(genuine(verifier, kCoordinator.sign(run_fact("r-1", 4), 1))->by_coordinator);
}

TEST(Verifier, RefusesWhatIsForged) {
  Verifier verifier(kCoordinator.identity.ed25519_key());
  pb::SignedRecord wire = kAnna.sign(node_fact("tcp://h:1"), 1);
  pb::SignedRecord flipped = wire;
  flipped.mutable_signature()->back() ^= 1;
  EXPECT_EQ(refusal(verifier, flipped), ErrorCode::kCorrupt);

  pb::SignedRecord changed = wire;
  pb::RecordBody body = value_of(protocol::parse_record_body(wire.body()));
  body.set_counter(2);
  changed.set_body(body.SerializeAsString());
  EXPECT_EQ(refusal(verifier, changed), ErrorCode::kCorrupt);

  pb::SignedRecord foreign = wire;  // another's certificate, whose key did not sign
  *foreign.mutable_certificate() = kBert.certificate;
  EXPECT_EQ(refusal(verifier, foreign), ErrorCode::kCorrupt);

  Author stranger(3);  // certified by itself
  stranger.certificate.set_signature(
      stranger.identity.sign(protocol::kCertificateDomain, stranger.certificate.body()));
  EXPECT_EQ(refusal(verifier, stranger.sign(node_fact(""), 1)), ErrorCode::kCorrupt);

  pb::SignedRecord naked = wire;
  naked.clear_certificate();
  EXPECT_EQ(refusal(verifier, naked), ErrorCode::kCorrupt);
}

TEST(Verifier, AGoodSignatureAboutWhatOthersMaySayIsRefused) {
  Verifier verifier(kCoordinator.identity.ed25519_key());
  EXPECT_EQ(refusal(verifier, kAnna.sign(run_fact("r-1", 4), 1)), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(verifier, kAnna.sign(revocation_fact(kBert.id()), 1)), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(verifier, kAnna.sign(node_fact(""), 1, at({}), 24h * 30)), ErrorCode::kCorrupt);
  Author viewer(4);
  viewer.certificate = certificate_of(viewer.identity, 1LL << 45, pb::ROLE_VIEWER);
  EXPECT_EQ(refusal(verifier, viewer.sign(node_fact(""), 1)), ErrorCode::kCorrupt);
}

TEST(Verifier, ACertificateIsOverForEveryoneTwoHoursLater) {
  Verifier verifier(kCoordinator.identity.ed25519_key());
  Author anna(1);
  anna.certificate = certificate_of(anna.identity, kToday);
  const pb::SignedRecord wire = anna.sign(node_fact(""), 1);
  genuine(verifier, wire, at(1h));
  EXPECT_EQ(refusal(verifier, wire, at(2h).unix_ms), ErrorCode::kUnauthorised);
}

TEST(Verifier, RemembersABoundedNumber) {
  Verifier verifier(kCoordinator.identity.ed25519_key(), 4);
  for (std::uint64_t i = 1; i < 40; ++i) {
    genuine(verifier, Author(i).sign(node_fact(""), 1));
    EXPECT_LE(verifier.remembered(), 12U);
  }
}

}  // namespace
}  // namespace skerry::gossip
