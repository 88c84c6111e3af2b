// SPDX-License-Identifier: Apache-2.0
#include "protocol/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/hash.h"
#include "base/temp_folder.h"

namespace skerry::protocol {
namespace {

using ::testing::HasSubstr;

TEST(Identity, SeedGivesBothKeys) {
  // Ed25519 test vector 1 of RFC 8032.
  const auto seed = from_hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
  auto identity = Identity::from_seed(*seed);
  ASSERT_TRUE(identity);
  EXPECT_EQ(to_hex(identity->ed25519_key()),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(*x25519_of(identity->ed25519_key()), identity->x25519_key());
  EXPECT_EQ(identity->node_id().str(), blake2b(identity->ed25519_key()).hex().substr(0, 32));
  // The signature of the empty message, by the same vector.
  EXPECT_EQ(to_hex(identity->sign("", "")),
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39"
            "701cf9b46b"
            "d25bf5f0595"
            "bbe24655141438e7a100b");
}

TEST(Identity, SignaturesAreForOnePurpose) {
  const Identity identity = Identity::generate();
  const std::string signature = identity.sign(kEnrolDomain, "words");
  EXPECT_TRUE(verify_signature(identity.ed25519_key(), kEnrolDomain, "words", signature));
  EXPECT_FALSE(verify_signature(identity.ed25519_key(), kRecordDomain, "words", signature));
  EXPECT_FALSE(verify_signature(identity.ed25519_key(), kEnrolDomain, "word", signature));
  EXPECT_FALSE(
      verify_signature(Identity::generate().ed25519_key(), kEnrolDomain, "words", signature));
  EXPECT_FALSE(verify_signature("short", kEnrolDomain, "words", signature));
}

TEST(Identity, FileIsMadeOnceAndPrivate) {
  const TempFolder folder;
  const auto path = folder.path() / "identity";
  const auto missing = Identity::load(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  const auto made = Identity::load_or_create(path);
  ASSERT_TRUE(made) << made.error().message;
  const auto again = Identity::load_or_create(path);
  ASSERT_TRUE(again);
  EXPECT_EQ(made->seed(), again->seed());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(Identity, CorruptFileIsAnErrorAndStays) {
  const TempFolder folder;
  const auto path = folder.path() / "identity";
  std::ofstream(path) << "skerry-identity-1 abcdef\n";
  const auto loaded = Identity::load_or_create(path);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(loaded.error().message, HasSubstr(path.string()));
}

pb::CertificateBody body_for(const Identity& node) {
  pb::CertificateBody body;
  body.set_ed25519_key(node.ed25519_key());
  body.set_role(pb::ROLE_NODE);
  body.set_name("rented-1");
  body.set_issued_unix_ms(1000);
  body.set_expires_unix_ms(2000);
  return body;
}

TEST(Certificate, IsTheCoordinatorsWord) {
  const Identity coordinator = Identity::generate();
  const Identity node = Identity::generate();
  const pb::Certificate certificate = issue_certificate(coordinator, body_for(node));
  const auto verified = verify_certificate(certificate, coordinator.ed25519_key(), 1999);
  ASSERT_TRUE(verified) << verified.error().message;
  EXPECT_EQ(verified->node_id(), node.node_id().str());
  EXPECT_EQ(verified->x25519_key(), node.x25519_key());
  EXPECT_EQ(verified->name(), "rented-1");
}

TEST(Certificate, RefusedWhenForeignExpiredOrChanged) {
  const Identity coordinator = Identity::generate();
  const Identity node = Identity::generate();
  pb::Certificate certificate = issue_certificate(coordinator, body_for(node));
  EXPECT_FALSE(verify_certificate(certificate, node.ed25519_key(), 1000));
  EXPECT_FALSE(verify_certificate(certificate, coordinator.ed25519_key(), 2000));
  pb::CertificateBody changed;
  ASSERT_TRUE(changed.ParseFromString(certificate.body()));
  changed.set_role(pb::ROLE_ADMIN);
  certificate.set_body(changed.SerializeAsString());
  EXPECT_FALSE(verify_certificate(certificate, coordinator.ed25519_key(), 1000));
  // Signed by the coordinator, but keys that do not belong together.
  changed.set_x25519_key(Identity::generate().x25519_key());
  certificate.set_body(changed.SerializeAsString());
  certificate.set_signature(coordinator.sign(kCertificateDomain, certificate.body()));
  EXPECT_FALSE(verify_certificate(certificate, coordinator.ed25519_key(), 1000));
}

}  // namespace
}  // namespace skerry::protocol
