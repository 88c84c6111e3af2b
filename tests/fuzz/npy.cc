// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/npy.h"

#include <cmath>

#include "base/check.h"
#include "diffusion/formats/latents.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {

using namespace diffusion;

namespace {

// The same file as latents, and as the labels of as many: whether it is either.
bool read_array(std::string_view input) {
  const auto array = parse_npy_array(input);
  if (!array) return false;
  const auto block = latents_of(*array);
  if (block) {
    check_latent(block->at(0));
    check_latent(block->at(block->count - 1));
  }
  constexpr std::uint64_t kMostLabels = 1 << 16;
  const std::uint64_t count = array->shape.empty() ? 0 : array->shape[0];
  if (count > kMostLabels) return block.has_value();
  const auto labels = labels_of(*array, count);
  SKERRY_CHECK(!labels || labels->size() == count, "labels were lost");
  return block.has_value() || labels.has_value();
}

}  // namespace

Verdict npy(std::string_view input) {
  const bool is_array = read_array(input);
  constexpr std::uint64_t kMostNumbers = 1 << 16;  // bounds the time that one input takes
  const auto parsed = parse_npy(input);
  if (!parsed) {
    SKERRY_CHECK(!parsed.error().message.empty(), "refused without a reason");
    return is_array ? Verdict::kAccepted : Verdict::kRefused;
  }
  const FeatureMatrix& matrix = *parsed;
  SKERRY_CHECK(matrix.rows > 0 && matrix.columns > 0 && matrix.columns <= kMostFeatureColumns,
               "no matrix");
  SKERRY_CHECK(matrix.data.end() == input.end() && matrix.data.size() < input.size(),
               "numbers beyond the file");
  SKERRY_CHECK(matrix.data.size() == matrix.rows * matrix.columns * matrix.number_bytes,
               "numbers do not fill the matrix");
  if (matrix.rows * matrix.columns > kMostNumbers) return Verdict::kAccepted;
  std::vector<std::uint32_t> all(matrix.rows);
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto rows = unit_rows(matrix, all);
  if (!rows) return Verdict::kRefused;
  SKERRY_CHECK(rows->size() == matrix.rows * matrix.columns, "rows were lost");
  for (const float value : *rows)
    SKERRY_CHECK(std::abs(value) <= 1.000001F, "no row of length one: ", value);
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
