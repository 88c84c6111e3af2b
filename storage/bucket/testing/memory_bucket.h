// SPDX-License-Identifier: Apache-2.0
// A bucket in memory that fails when it is told to. For tests.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "storage/bucket/bucket.h"

namespace skerry::storage {

class MemoryBucket final : public Bucket {
 public:
  // Called before each change, with "put KEY" or "remove KEY". What it returns
  // is the outcome; a failed change is not made.
  std::function<Result<void>(const std::string& change)> before_change;
  std::map<std::string, std::string> values;

  Result<std::string> get(const std::string& key, std::size_t most) const override {
    const std::scoped_lock lock(mutex_);
    const auto found = values.find(key);
    if (found == values.end()) return fail(ErrorCode::kNotFound, "no key " + key);
    if (found->second.size() > most) return fail(ErrorCode::kInvalid, key + " is longer");
    return found->second;
  }
  Result<void> put(const std::string& key, std::string_view value) override {
    const std::scoped_lock lock(mutex_);
    if (before_change) TRY(before_change("put " + key));
    values[key] = value;
    return {};
  }
  Result<void> remove(const std::string& key) override {
    const std::scoped_lock lock(mutex_);
    if (before_change) TRY(before_change("remove " + key));
    values.erase(key);
    return {};
  }
  Result<std::vector<BucketItem>> list(const std::string& prefix) const override {
    const std::scoped_lock lock(mutex_);
    std::vector<BucketItem> items;
    for (const auto& [key, value] : values) {
      if (key.starts_with(prefix)) items.push_back({key, value.size()});
    }
    return items;
  }
  std::string shown() const override { return "memory"; }

 private:
  mutable std::mutex mutex_;
};

}  // namespace skerry::storage
