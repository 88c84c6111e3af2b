// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/check.h"
#include "base/text.h"
#include "storage/safetensors.h"

namespace skerry::storage {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<Row, 10> kRows = {{{DType::kBool, "BOOL", 1},
                                        {DType::kU8, "U8", 1},
                                        {DType::kI8, "I8", 1},
                                        {DType::kI16, "I16", 2},
                                        {DType::kI32, "I32", 4},
                                        {DType::kI64, "I64", 8},
                                        {DType::kF16, "F16", 2},
                                        {DType::kBF16, "BF16", 2},
                                        {DType::kF32, "F32", 4},
                                        {DType::kF64, "F64", 8}}};

const Row& row_of(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  check_failed(__FILE__, __LINE__, "known dtype", text("value ", static_cast<int>(dtype)));
}

}  // namespace

std::size_t bytes_of(DType dtype) { return row_of(dtype).bytes; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }

Result<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return fail(ErrorCode::kInvalid, text("unknown tensor type \"", name, "\""));
}

}  // namespace skerry::storage
