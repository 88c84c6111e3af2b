// SPDX-License-Identifier: Apache-2.0
// The pure half of enrolment; its walk over a connection is in
// transport_test.cc.
#include <gtest/gtest.h>

#include "protocol/enrol.h"
#include "protocol/validate.h"

namespace skerry::protocol {
namespace {

struct Enrolment : ::testing::Test {
  const Identity coordinator = Identity::generate();
  const Identity node = Identity::generate();
  const JoinToken token{{"tcp://h:1", "tcp://h:2", "tcp://h:3"},
                        coordinator.ed25519_key(),
                        new_token_id(),
                        new_token_secret(),
                        pb::ROLE_NODE,
                        1'000'000};
  const pb::EnrolRequest request = build_enrol_request(node, token, "rented-1", 7);

  pb::EnrolReply granted(const Identity& to) const {
    pb::CertificateBody body;
    body.set_ed25519_key(to.ed25519_key());
    body.set_role(pb::ROLE_NODE);
    body.set_expires_unix_ms(2'000'000);
    pb::EnrolReply reply;
    reply.set_id(7);
    *reply.mutable_certificate() = issue_certificate(coordinator, body);
    return reply;
  }
};

TEST_F(Enrolment, GoodRequestPasses) {
  EXPECT_TRUE(parse_enrol_request(request.SerializeAsString()));
  EXPECT_TRUE(check_enrol_request(request, coordinator.x25519_key(), node.x25519_key()));
}

TEST_F(Enrolment, OnlyTheConnectionsOwnKey) {
  EXPECT_FALSE(
      check_enrol_request(request, coordinator.x25519_key(), Identity::generate().x25519_key()));
}

TEST_F(Enrolment, OnlyForThisServerTokenAndKey) {
  EXPECT_FALSE(check_enrol_request(request, Identity::generate().x25519_key(), node.x25519_key()));
  pb::EnrolRequest other = request;
  other.set_token_id("000000000000");
  EXPECT_FALSE(check_enrol_request(other, coordinator.x25519_key(), node.x25519_key()));
  other = request;
  other.set_signature(Identity::generate().sign(kEnrolDomain, "anything"));
  EXPECT_FALSE(check_enrol_request(other, coordinator.x25519_key(), node.x25519_key()));
  other = request;
  other.set_ed25519_key(std::string(32, '\0'));
  EXPECT_FALSE(check_enrol_request(other, coordinator.x25519_key(), node.x25519_key()));
}

TEST_F(Enrolment, ReplyIsCheckedByTheNode) {
  const auto enrolled = check_enrol_reply(granted(node), node, token, 1'000);
  ASSERT_TRUE(enrolled) << enrolled.error().message;
  EXPECT_EQ(enrolled->body.node_id(), node.node_id().str());
  EXPECT_FALSE(check_enrol_reply(granted(Identity::generate()), node, token, 1'000));
  EXPECT_FALSE(check_enrol_reply(granted(node), node, token, 3'000'000));
  pb::EnrolReply refused;
  *refused.mutable_error() = to_message(fail(ErrorCode::kUnauthorised, "spent"));
  EXPECT_EQ(check_enrol_reply(refused, node, token, 1'000).error().message, "spent");
}

}  // namespace
}  // namespace skerry::protocol
