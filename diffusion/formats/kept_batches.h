// SPDX-License-Identifier: Apache-2.0
// A file of what encoders made, so that an ingestion that was killed goes on
// where it was, to the same bytes. The file is a list of batches: a hash of
// what was encoded, what it became, and the hash of that. A batch is taken from
// it if it is the next one there.
// THREADS: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "storage/files.h"

namespace skerry::diffusion {

class KeptBatches {
 public:
  // Creates a missing file.
  static Result<KeptBatches> open(const std::string& path);
  // `inputs` names the batch and all that its output depends on.
  // RETURNS: the output, if this batch is the next one in the file, and whole.
  std::optional<std::string> next(const Hash& inputs);
  // Writes a batch that next() did not find. What lies in the file from there
  // on is overwritten.
  Result<void> append(const Hash& inputs, std::string_view output);

 private:
  explicit KeptBatches(std::unique_ptr<storage::File> file) : file_(std::move(file)) {}

  std::unique_ptr<storage::File> file_;
  std::uint64_t at_ = 0;  // of the next batch
  bool is_at_end_ = false;
};

}  // namespace skerry::diffusion
