// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints until it is killed. Prints each acknowledged number on a
// line of standard output. Usage: storage_crash_writer FOLDER FIRST
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/check.h"
#include "storage/rocksdb/crash_script.h"
#include "storage/rocksdb/rocksdb_store.h"

int main(int argc, char** argv) {
  using namespace skerry;
  using namespace skerry::storage;
  SKERRY_CHECK(argc == 3, "usage: storage_crash_writer FOLDER FIRST");
  RocksDbOptions options;
  options.write_buffer_bytes = 256 << 10;
  const auto store = open_rocksdb_store(argv[1], options);
  SKERRY_CHECK(store.has_value(), store.has_value() ? "" : store.error().message);
  for (unsigned number = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));; ++number) {
    const auto outcome = write_scripted_checkpoint(**store, number);
    SKERRY_CHECK(outcome.has_value(), outcome.has_value() ? "" : outcome.error().message);
    const std::string line = std::to_string(number) + "\n";
    SKERRY_CHECK(
        ::write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
        "stdout is closed");
  }
}
