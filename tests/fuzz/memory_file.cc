// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"

namespace skerry::fuzz {

MemoryFile::MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  SKERRY_CHECK(bool(fd_), "no file in memory");
}

void MemoryFile::set(std::string_view bytes) {
  SKERRY_CHECK(::ftruncate(fd_.get(), 0) == 0, "a file in memory that cannot be emptied");
  SKERRY_CHECK(
      ::pwrite(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
      "a file in memory that takes no bytes");
}

std::string MemoryFile::path() const { return text("/proc/self/fd/", fd_.get()); }

}  // namespace skerry::fuzz
