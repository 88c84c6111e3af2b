// SPDX-License-Identifier: Apache-2.0
// The conformance suite of Store. Each test program names its versions with
// INSTANTIATE_TEST_SUITE_P.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "storage/store.h"

namespace skerry::storage {

// Owns a fresh store and its backing.
class StoreHolder {
 public:
  virtual ~StoreHolder() = default;
  virtual Store& store() = 0;
};

struct StoreVersion {
  std::string name;
  std::function<std::unique_ptr<StoreHolder>()> make;
};

inline void PrintTo(const StoreVersion& version, std::ostream* out) { *out << version.name; }

class StoreConformance : public testing::TestWithParam<StoreVersion> {
 protected:
  Store& store() { return holder_->store(); }

 private:
  std::unique_ptr<StoreHolder> holder_ = GetParam().make();
};

}  // namespace skerry::storage
