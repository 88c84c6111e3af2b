// SPDX-License-Identifier: Apache-2.0
// URLs that carry their own permission, for any S3-compatible store: AWS
// Signature Version 4 by query parameters
// (docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html).
// THREADS: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace skerry::storage {

struct BucketKeys {
  std::string id;      // AWS_ACCESS_KEY_ID
  std::string secret;  // AWS_SECRET_ACCESS_KEY
  std::string token;   // AWS_SESSION_TOKEN; empty: none
};

struct SignedRequest {
  std::string method = "GET";
  std::string origin;                             // "https://host[:port]"
  std::string path;                               // "/bucket/key", not encoded
  std::map<std::string, std::string> query = {};  // not encoded
};

// RETURNS: the URL that grants this request, of any body, until `valid` after
// `unix_seconds`.
std::string signed_url(const SignedRequest& request, const BucketKeys& keys,
                       const std::string& region, std::int64_t unix_seconds,
                       std::chrono::seconds valid);

// As S3 encodes: all but A–Z a–z 0–9 - . _ ~, and '/' where `keeps_slash`.
std::string uri_encoded(std::string_view value, bool keeps_slash);

}  // namespace skerry::storage
