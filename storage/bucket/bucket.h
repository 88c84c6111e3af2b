// SPDX-License-Identifier: Apache-2.0
// The Bucket seam: whole values by key, in an S3-compatible store or in memory.
//
// Reads see every write that returned before, as S3, R2, B2 and MinIO promise.
// THREADS: any, many at once; methods block on the network.
// ON FAILURE: messages name the bucket and key, never a secret.
// - kUnauthorised: the keys are refused.
// - kExhausted: the bucket is full.
// - kUnavailable: no answer in time, or the store's own failure. The call was
//   repeated already.
// - kInvalid: there is no such bucket, or the store refuses the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::storage {

struct BucketItem {
  std::string key;
  std::uint64_t bytes = 0;
};

class Bucket {
 public:
  virtual ~Bucket() = default;

  // Reads at most so many bytes.
  // ON FAILURE: kNotFound: there is no such key. kInvalid: the value is longer.
  virtual Result<std::string> get(const std::string& key, std::size_t most) const = 0;
  // Durable on return; replaces what is there.
  virtual Result<void> put(const std::string& key, std::string_view value) = 0;
  // Does nothing if there is no such key.
  virtual Result<void> remove(const std::string& key) = 0;
  // RETURNS: every item whose key begins with prefix, in order of key.
  virtual Result<std::vector<BucketItem>> list(const std::string& prefix) const = 0;
  virtual std::string shown() const = 0;  // "s3://models/skerry", for messages
};

}  // namespace skerry::storage
