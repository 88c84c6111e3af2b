// SPDX-License-Identifier: Apache-2.0
// Arrays that another program computed: latents, labels, and features, which
// are the rows of a matrix of floating-point numbers, one a sample. Bytes from
// outside: bounded, and nothing is read beyond them. Plain values, no state:
// any thread. Failure rule: kCorrupt for bytes that break the format, kInvalid
// for what is no array of numbers; both say what was expected.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

// Numbers in C's order, little-endian. A view into the file's bytes, which are
// as many as the shape says.
struct NumberArray {
  std::vector<std::uint64_t> shape;
  char kind = 'f';               // floats; i, u: whole numbers with a sign and without
  std::size_t number_bytes = 4;  // 2, 4 or 8 of floats, 1 to 8 of others
  std::string_view data;
};
// A NumPy file (format 1 to 3) of one array.
Result<NumberArray> parse_npy_array(std::string_view file);

// Number `index` of floats of so many bytes. REQUIRES: it is there.
double float_at(std::string_view data, std::size_t number_bytes, std::uint64_t index);
// Of whole numbers; one of 8 bytes without a sign that is beyond the others'
// range is −2^63. REQUIRES: it is there.
std::int64_t integer_at(const NumberArray& array, std::uint64_t index);

// [rows, columns] of floats of 2, 4 or 8 bytes, little-endian, row after row. A
// view into the file's bytes.
struct FeatureMatrix {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::size_t number_bytes = 4;
  std::string_view data;
};
constexpr std::uint64_t kMostFeatureColumns = 65536;

// kInvalid where a matrix has no rows, too many (2^32) or too many columns.
Result<void> check_feature_shape(std::uint64_t rows, std::uint64_t columns);

// A NumPy file of one array of floats.
Result<FeatureMatrix> parse_npy(std::string_view file);

// The rows asked for, as fp32, each scaled to length 1; a row of zeros stays
// one. kInvalid names a row that holds a number that is not finite. REQUIRES:
// every index below rows.
Result<std::vector<float>> unit_rows(const FeatureMatrix& matrix,
                                     std::span<const std::uint32_t> rows);

}  // namespace skerry::diffusion
