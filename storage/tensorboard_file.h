// SPDX-License-Identifier: Apache-2.0
// Writes numbers by step for TensorBoard. The file has records in the form of
// TFRecord, each with its length and masked CRC-32C sums; each record is a
// tensorflow.Event. Three fields need no protobuf.
// THREADS: one at a time.
// ON FAILURE: kIo names the file; earlier records stay readable.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace skerry::storage {

// The CRC of Castagnoli, as in iSCSI (RFC 3720, B.4).
std::uint32_t crc32c(std::string_view bytes);

class TensorBoardFile {
 public:
  // Creates the folder and a new file in it. TensorBoard joins the files of a
  // folder.
  static Result<TensorBoardFile> create(const std::string& folder, double unix_seconds);

  Result<void> add(std::uint64_t step, double unix_seconds,
                   const std::vector<std::pair<std::string, double>>& scalars);
  const std::string& path() const { return path_; }

 private:
  TensorBoardFile(std::string path, std::ofstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> write(const std::string& event);

  std::string path_;
  std::ofstream file_;
};

}  // namespace skerry::storage
