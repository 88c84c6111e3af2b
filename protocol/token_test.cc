// SPDX-License-Identifier: Apache-2.0
#include "protocol/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/identity.h"

namespace skerry::protocol {
namespace {

using ::testing::HasSubstr;

JoinToken sample() {
  return {{"tcp://a.example:7600", "tcp://a.example:7601", "tcp://a.example:7602"},
          Identity::generate().ed25519_key(),
          new_token_id(),
          new_token_secret(),
          pb::ROLE_NODE,
          5000};
}

TEST(Token, ReadsWhatItWrote) {
  const JoinToken token = sample();
  const auto read = parse_token(" " + format_token(token) + "\n", 4999);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->endpoints, token.endpoints);
  EXPECT_EQ(read->coordinator_key, token.coordinator_key);
  EXPECT_EQ(read->id, token.id);
  EXPECT_EQ(read->secret, token.secret);
  EXPECT_EQ(read->role, pb::ROLE_NODE);
  EXPECT_EQ(read->expires_unix_ms, 5000);
}

TEST(Token, EveryGarbledCharacterIsNoticed) {
  const std::string good = format_token(sample());
  for (std::size_t i = 8; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == 'A' ? 'B' : 'A';
    const auto read = parse_token(bad, 0);
    ASSERT_FALSE(read) << i;
    EXPECT_THAT(read.error().message, HasSubstr("garbled")) << i;
  }
  EXPECT_FALSE(parse_token(good.substr(0, good.size() - 3), 0));
  EXPECT_FALSE(parse_token(good + "AAAA", 0));
  EXPECT_FALSE(parse_token(good.substr(0, 40) + "\n" + good.substr(40), 0));
}

TEST(Token, SaysWhatIsWrong) {
  EXPECT_THAT(parse_token("", 0).error().message, HasSubstr("not a token"));
  EXPECT_THAT(parse_token("hello", 0).error().message, HasSubstr("not a token"));
  EXPECT_THAT(parse_token("skerry2.AAAA", 0).error().message, HasSubstr("version \"skerry2\""));
  EXPECT_THAT(parse_token("skerry1.", 0).error().message, HasSubstr("garbled"));
  const auto expired = parse_token(format_token(sample()), 5000);
  ASSERT_FALSE(expired);
  EXPECT_EQ(expired.error().code, ErrorCode::kUnauthorised);
  EXPECT_THAT(expired.error().message, HasSubstr("1970-01-01T00:00:05"));
  EXPECT_THAT(expired.error().message, HasSubstr("set this machine's clock"));
}

TEST(Token, NamesARoleThatIsKnown) {
  for (const int role : {0, 4, -1}) {
    JoinToken token = sample();
    token.role = static_cast<pb::Role>(role);
    EXPECT_FALSE(parse_token(format_token(token), 0)) << role;
  }
}

TEST(Token, SecretsAreFreshAndTheirHashHidesThem) {
  const std::string secret = new_token_secret();
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_NE(secret, new_token_secret());
  EXPECT_NE(token_secret_hash(secret).raw(), secret);
  EXPECT_NE(token_secret_hash(secret), token_secret_hash(new_token_secret()));
  EXPECT_EQ(new_token_id().str().size(), 12u);
}

struct AddressCase {
  std::string text;
  bool good;
  std::string host;
  std::array<std::uint16_t, 3> ports;
};

TEST(Address, HostAndPorts) {
  const AddressCase cases[] = {
      {"127.0.0.1:7000", true, "127.0.0.1", {7000, 7001, 7002}},
      {"host.example", true, "host.example", {7600, 7601, 7602}},
      {"h:0", true, "h", {0, 0, 0}},
      {"h:1,20,300", true, "h", {1, 20, 300}},
      {"[::1]:65533", true, "::1", {65533, 65534, 65535}},
      {"h:65534", false, "", {}},
      {"h:65536", false, "", {}},
      {"h:-1", false, "", {}},
      {"h:1,2", false, "", {}},
      {"h:1,2,3,4", false, "", {}},
      {"h:", false, "", {}},
      {":7000", false, "", {}},
      {"::1:7000", false, "", {}},
      {"tcp://h:7000", false, "", {}},
      {"", false, "", {}},
  };
  for (const AddressCase& one : cases) {
    const auto parsed = parse_address(one.text);
    ASSERT_EQ(parsed.has_value(), one.good) << one.text;
    if (!parsed) continue;
    EXPECT_EQ(parsed->host, one.host);
    EXPECT_EQ(parsed->ports, one.ports) << one.text;
  }
}

TEST(Address, SaysWhatIsTheHighestPort) {
  for (const char* high : {"h:65534", "h:65535"}) {
    const auto refused = parse_address(high);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("65533 at most"), std::string::npos)
        << refused.error().message;
  }
  EXPECT_EQ(parse_address("h:65536").error().message.find("at most"), std::string::npos);
  EXPECT_TRUE(parse_address("h:65535,65534,65533"));
}

TEST(Address, Urls) {
  EXPECT_EQ(tcp_url("::1", 7), "tcp://[::1]:7");
  EXPECT_TRUE(check_url("tcp://[::1]:7"));
  EXPECT_TRUE(check_url("tcp://a.example:7600"));
  EXPECT_TRUE(check_url("tcp://[fe80::1%eth0]:7"));
  EXPECT_TRUE(check_url("tcp://a-b_c.example:7600"));
  for (const char* bad :
       {"", "tcp://", "tcp://h", "tcp://h:0", "tcp://h:1,2,3", "ipc://x", "tcp://h:99999",
        "tcp://*:7", "tcp://-:7", "tcp://_a:7", "tcp://a@b:7", "tcp://a;b:7", "tcp://\xc3\xa4:7"}) {
    EXPECT_FALSE(check_url(bad)) << bad;
  }
}

}  // namespace
}  // namespace skerry::protocol
