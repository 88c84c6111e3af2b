// SPDX-License-Identifier: Apache-2.0
#include "storage/bucket/signing.h"

#include <sodium.h>

#include <array>
#include <ctime>

#include "base/check.h"
#include "base/text.h"

namespace skerry::storage {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";

std::string sha256(std::string_view bytes) {
  std::string out(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256(reinterpret_cast<unsigned char*>(out.data()),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return out;
}

std::string hmac(std::string_view key, std::string_view bytes) {
  std::string out(crypto_auth_hmacsha256_BYTES, '\0');
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.data()),
                              key.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(bytes.data()),
                                bytes.size());
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(out.data()));
  return out;
}

std::string time_text(std::int64_t unix_seconds) {  // 20130524T000000Z
  const std::time_t at = unix_seconds;
  std::tm parts{};
  SKERRY_CHECK(gmtime_r(&at, &parts) != nullptr, "a time that has no date");
  std::array<char, 32> out{};
  std::strftime(out.data(), out.size(), "%Y%m%dT%H%M%SZ", &parts);
  return out.data();
}

std::string query_text(const std::map<std::string, std::string>& query) {
  std::string out;
  for (const auto& [name, value] : query) {
    if (!out.empty()) out += '&';
    out += uri_encoded(name, false) + '=' + uri_encoded(value, false);
  }
  return out;
}

}  // namespace

std::string uri_encoded(std::string_view value, bool keeps_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string out;
  for (const char c : value) {
    if (kPlain.find(c) != std::string_view::npos || (keeps_slash && c == '/')) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::string signed_url(const SignedRequest& request, const BucketKeys& keys,
                       const std::string& region, std::int64_t unix_seconds,
                       std::chrono::seconds valid) {
  const std::string when = time_text(unix_seconds), day = when.substr(0, 8);
  const std::string scope = text(day, '/', region, "/s3/aws4_request");
  const std::string host = request.origin.substr(request.origin.find("://") + 3);
  std::map<std::string, std::string> query = request.query;
  query["X-Amz-Algorithm"] = kAlgorithm;
  query["X-Amz-Credential"] = keys.id + '/' + scope;
  query["X-Amz-Date"] = when;
  query["X-Amz-Expires"] = text(valid.count());
  query["X-Amz-SignedHeaders"] = "host";
  if (!keys.token.empty()) query["X-Amz-Security-Token"] = keys.token;
  const std::string path = uri_encoded(request.path, true), words = query_text(query);
  const std::string canonical =
      text(request.method, '\n', path, '\n', words, "\nhost:", host, "\n\nhost\nUNSIGNED-PAYLOAD");
  const std::string to_sign =
      text(kAlgorithm, '\n', when, '\n', scope, '\n', to_hex(sha256(canonical)));
  std::string key = "AWS4" + keys.secret;
  for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")})
    key = hmac(key, part);
  return text(request.origin, path, '?', words, "&X-Amz-Signature=", to_hex(hmac(key, to_sign)));
}

}  // namespace skerry::storage
