// SPDX-License-Identifier: Apache-2.0
// A bucket of an S3-compatible store: AWS, R2, B2, MinIO.
//
// Each request has a signed URL of its own. It follows no redirect, and is
// repeated with growing pauses where the store does not answer or fails itself.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "storage/bucket/bucket.h"
#include "storage/bucket/signing.h"

namespace skerry::storage {

struct S3Place {
  std::string url;       // "s3://bucket" or "s3://bucket/prefix"
  std::string endpoint;  // "https://host[:port]"; empty: AWS in this region
  std::string region = "us-east-1";
  BucketKeys keys;
  int tries = 6;                               // of each request
  std::chrono::milliseconds first_pause{250};  // doubles each time
  std::chrono::seconds silence{20};            // a transfer that moves nothing ends after that
  const std::atomic<bool>* stop = nullptr;     // once true, every request ends at once
};

// Asks the store nothing yet.
// ON FAILURE: kInvalid: not such a URL, not an endpoint, or no keys.
Result<std::unique_ptr<Bucket>> open_s3_bucket(S3Place place);

// RETURNS: the keys of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN; or, if `file` is not empty, of that TOML file, which names
// them access_key_id, secret_access_key and session_token.
// ON FAILURE: kInvalid names what is missing; kUnauthorised: others may read
// the file.
Result<BucketKeys> bucket_keys(const std::string& file);

}  // namespace skerry::storage
