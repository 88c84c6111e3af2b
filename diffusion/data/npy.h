// Features that another program computed: the rows of a matrix of floating-point numbers, one a sample. Bytes from
// outside: bounded, and nothing is read beyond them. Plain values, no state: any thread.
// Failure rule: kCorrupt for bytes that break the format, kInvalid for what is no matrix of numbers; both say what was
// expected.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

// [rows, columns] of floats of 2, 4 or 8 bytes, little-endian, row after row. A view into the file's bytes.
struct FeatureMatrix {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::size_t number_bytes = 4;
  std::string_view data;
};
constexpr std::uint64_t kMostFeatureColumns = 65536;

// kInvalid where a matrix has no rows, too many (2^32) or too many columns.
Result<void> check_feature_shape(std::uint64_t rows, std::uint64_t columns);

// A NumPy file (format 1 to 3) of one array.
Result<FeatureMatrix> parse_npy(std::string_view file);

// The rows asked for, as fp32, each scaled to length 1; a row of zeros stays one. kInvalid names a row that holds a number
// that is not finite. REQUIRES: every index below rows.
Result<std::vector<float>> unit_rows(const FeatureMatrix& matrix, std::span<const std::uint32_t> rows);

}  // namespace skerry::diffusion
