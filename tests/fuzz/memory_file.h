// SPDX-License-Identifier: Apache-2.0
// A file in memory for decoders that read paths.
#pragma once

#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace skerry::fuzz {

class MemoryFile {
 public:
  MemoryFile();
  void set(std::string_view bytes);  // in place of what it held
  std::string path() const;          // as long as the object lives

 private:
  UniqueFd fd_;
};

}  // namespace skerry::fuzz
