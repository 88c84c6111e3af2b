// SPDX-License-Identifier: Apache-2.0
// Reads arrays that another program computed: latents, labels and features.
// Features are the rows of a matrix of floating-point numbers, one a sample.
// The bytes come from outside: sizes are bounded, and no read goes beyond them.
// Plain values, no state.
// THREADS: any.
// ON FAILURE: kCorrupt for bytes that break the format, kInvalid for something
// other than an array of numbers. Both say what was expected.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

// Numbers in C's order, little-endian. A view into the file's bytes, whose
// number matches the shape.
struct NumberArray {
  std::vector<std::uint64_t> shape;
  char kind = 'f';               // f: floats; i, u: signed and unsigned whole numbers
  std::size_t number_bytes = 4;  // 2, 4 or 8 for floats, 1 to 8 for others
  std::string_view data;
};
// A NumPy file (format 1 to 3) of one array.
Result<NumberArray> parse_npy_array(std::string_view file);

// RETURNS: number `index` of floats of so many bytes.
// REQUIRES: it is there.
double float_at(std::string_view data, std::size_t number_bytes, std::uint64_t index);
// RETURNS: a whole number; −2^63 for an unsigned one of 8 bytes beyond the
// signed range.
// REQUIRES: it is there.
std::int64_t integer_at(const NumberArray& array, std::uint64_t index);

// [rows, columns] of floats of 2, 4 or 8 bytes, little-endian, in row order. A
// view into the file's bytes.
struct FeatureMatrix {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::size_t number_bytes = 4;
  std::string_view data;
};
constexpr std::uint64_t kMostFeatureColumns = 65536;

// ON FAILURE: kInvalid if a matrix has no rows, too many (2^32) or too many
// columns.
Result<void> check_feature_shape(std::uint64_t rows, std::uint64_t columns);

// A NumPy file of one array of floats.
Result<FeatureMatrix> parse_npy(std::string_view file);

// RETURNS: the requested rows as fp32, each scaled to length 1; a row of zeros
// stays zero.
// REQUIRES: every index is below rows.
// ON FAILURE: kInvalid names a row with a number that is not finite.
Result<std::vector<float>> unit_rows(const FeatureMatrix& matrix,
                                     std::span<const std::uint32_t> rows);

}  // namespace skerry::diffusion
