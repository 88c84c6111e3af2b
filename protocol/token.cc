// SPDX-License-Identifier: Apache-2.0
#include "protocol/token.h"

#include <sodium.h>

#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "protocol/identity.h"

namespace skerry::protocol {
namespace {

constexpr std::string_view kPrefix = "skerry1.";
constexpr std::string_view kAnyPrefix = "skerry";
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kTokenTextBytes = 4096;
constexpr int kVariant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;

std::string random_bytes(std::size_t count) {
  SKERRY_CHECK(sodium_init() >= 0, "libsodium found no source of random numbers");
  std::string bytes(count, '\0');
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

std::string encode(std::string_view bytes) {
  std::vector<char> coded(sodium_base64_encoded_len(bytes.size(), kVariant));
  sodium_bin2base64(coded.data(), coded.size(),
                    reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), kVariant);
  return coded.data();
}

bool decode(std::string_view coded, std::string& bytes) {
  bytes.resize(coded.size());
  std::size_t size = 0;
  const char* end = nullptr;
  if (sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), coded.data(),
                        coded.size(), nullptr, &size, &end, kVariant) != 0 ||
      end != coded.data() + coded.size()) {
    return false;
  }
  bytes.resize(size);
  return true;
}

std::string checksum(std::string_view body) {
  return blake2b(body).raw().substr(0, kChecksumBytes);
}

Error garbled() {
  return fail(ErrorCode::kInvalid,
              "the token is garbled or incomplete: copy all of it, in one line, and try again");
}

Result<JoinToken> from_body(const pb::JoinTokenBody& body) {
  JoinToken token{{body.endpoints().enrol(), body.endpoints().control(), body.endpoints().blob()},
                  body.coordinator_key(),
                  TokenId(body.token_id()),
                  body.secret(),
                  body.role(),
                  body.expires_unix_ms()};
  for (const Endpoint endpoint : kAllEndpoints) TRY(check_url(token.endpoints.of(endpoint)));
  if (token.secret.size() != kKeyBytes || !x25519_of(token.coordinator_key) || token.id.empty() ||
      !pb::Role_IsValid(token.role) || token.role == pb::ROLE_NONE) {
    return garbled();
  }
  return token;
}

std::string_view trim(std::string_view value) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = value.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return value.substr(first, value.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

std::string new_token_secret() { return random_bytes(kKeyBytes); }
TokenId new_token_id() { return TokenId(to_hex(random_bytes(6))); }
Hash token_secret_hash(std::string_view secret) {
  return blake2b(text("skerry token secret 1", secret));
}

pb::JoinTokenBody token_body(const JoinToken& token) {
  pb::JoinTokenBody body;
  body.mutable_endpoints()->set_enrol(token.endpoints.enrol);
  body.mutable_endpoints()->set_control(token.endpoints.control);
  body.mutable_endpoints()->set_blob(token.endpoints.blob);
  body.set_coordinator_key(token.coordinator_key);
  body.set_token_id(token.id.str());
  body.set_secret(token.secret);
  body.set_role(token.role);
  body.set_expires_unix_ms(token.expires_unix_ms);
  return body;
}

std::string format_token(const JoinToken& token) {
  const std::string bytes = token_body(token).SerializeAsString();
  return text(kPrefix, encode(bytes + checksum(bytes)));
}

Result<JoinToken> parse_token(std::string_view value, std::int64_t now_unix_ms) {
  value = trim(value);
  if (!value.starts_with(kPrefix)) {
    if (value.starts_with(kAnyPrefix) && value.find('.') < 12) {
      return fail(
          ErrorCode::kInvalid,
          text("a token of version \"", value.substr(0, value.find('.')),
               "\"; this program knows \"skerry1\": use the same release as the coordinator"));
    }
    return fail(ErrorCode::kInvalid, "not a token: expected text that begins with \"skerry1.\"");
  }
  std::string bytes;
  if (value.size() > kTokenTextBytes || !decode(value.substr(kPrefix.size()), bytes) ||
      bytes.size() <= kChecksumBytes) {
    return garbled();
  }
  const std::string_view payload = std::string_view(bytes).substr(0, bytes.size() - kChecksumBytes);
  pb::JoinTokenBody body;
  if (checksum(payload) != std::string_view(bytes).substr(payload.size()) ||
      !body.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return garbled();
  }
  ASSIGN_OR_RETURN(JoinToken token, from_body(body));
  if (now_unix_ms >= token.expires_unix_ms) {
    return fail(ErrorCode::kUnauthorised,
                text("the token expired at ", utc_time(token.expires_unix_ms), ", and here it is ",
                     utc_time(now_unix_ms),
                     ": ask for a new one (skerry token create), or set this machine's clock"));
  }
  return token;
}

}  // namespace skerry::protocol
