// SPDX-License-Identifier: Apache-2.0
// The conformance suite of Files. Each test program names its versions with
// INSTANTIATE_TEST_SUITE_P.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "storage/files.h"

namespace skerry::storage {

// Owns fresh files and their backing.
class FilesHolder {
 public:
  virtual ~FilesHolder() = default;
  virtual Files& files() = 0;
  virtual std::string folder() = 0;  // exists and is empty
};

struct FilesVersion {
  std::string name;
  std::function<std::unique_ptr<FilesHolder>()> make;
};

inline void PrintTo(const FilesVersion& version, std::ostream* out) { *out << version.name; }

class FilesConformance : public testing::TestWithParam<FilesVersion> {
 protected:
  Files& files() { return holder_->files(); }
  std::string path(const std::string& name) { return holder_->folder() + "/" + name; }
  std::string folder() { return holder_->folder(); }

 private:
  std::unique_ptr<FilesHolder> holder_ = GetParam().make();
};

}  // namespace skerry::storage
