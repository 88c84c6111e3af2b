// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "base/text.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeaderBytes = 64 << 10;
constexpr std::size_t kMostExtents = 32;  // as many as NumPy allows

Error corrupt(std::string_view what) { return fail(ErrorCode::kCorrupt, text("npy: ", what)); }

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

// Python's literal of a dict, as far as NumPy writes it: {'descr': '<f4',
// 'fortran_order': False, 'shape': (3, 4), }
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  std::optional<Header> read() {
    if (!take("{")) return std::nullopt;
    while (!take("}")) {
      const auto key = quoted();
      if (!key || !take(":") || !value(*key)) return std::nullopt;
      if (!take(",") && !next_is('}')) return std::nullopt;
    }
    skip_space();
    const bool whole = rest_.empty() && header_.descr && header_.fortran_order && header_.shape;
    return whole ? std::optional(std::move(header_)) : std::nullopt;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  bool next_is(char c) {
    skip_space();
    return rest_.starts_with(c);
  }
  bool take(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> quoted() {
    if (!take("'")) return std::nullopt;
    const std::size_t end = rest_.find('\'');
    if (end == std::string_view::npos) return std::nullopt;
    std::string word(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return word;
  }
  std::optional<bool> truth() {
    if (take("True")) return true;
    return take("False") ? std::optional(false) : std::nullopt;
  }
  std::optional<std::uint64_t> number() {
    skip_space();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::optional<std::vector<std::uint64_t>> tuple() {
    if (!take("(")) return std::nullopt;
    std::vector<std::uint64_t> extents;
    while (!take(")")) {
      const auto extent = number();
      if (!extent || extents.size() == kMostExtents) return std::nullopt;
      extents.push_back(*extent);
      if (!take(",") && !next_is(')')) return std::nullopt;
    }
    return extents;
  }
  // False: no such key, not its kind of value, or the second of its name.
  bool value(const std::string& key) {
    if (key == "descr" && !header_.descr) return (header_.descr = quoted()).has_value();
    if (key == "fortran_order" && !header_.fortran_order)
      return (header_.fortran_order = truth()).has_value();
    if (key == "shape" && !header_.shape) return (header_.shape = tuple()).has_value();
    return false;
  }

  std::string_view rest_;
  Header header_;
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return value;
}

// What the header says, and all bytes that follow it.
Result<NumberArray> open_array(std::string_view file) {
  if (!file.starts_with(kMagic)) return corrupt("not a NumPy file by its first bytes");
  if (file.size() < kMagic.size() + 2) return corrupt("the file is truncated");
  const auto version = static_cast<unsigned char>(file[kMagic.size()]);
  if (version < 1 || version > 3)
    return corrupt(text("format ", unsigned{version}, ", expected 1 to 3"));
  const std::size_t length_bytes = version == 1 ? 2 : 4, length_at = kMagic.size() + 2;
  if (file.size() < length_at + length_bytes) return corrupt("the file is truncated");
  const std::uint64_t length = little_endian(file.substr(length_at, length_bytes));
  if (length > kMostHeaderBytes) return corrupt(text("a header of ", length, " bytes"));
  const std::size_t data_at = length_at + length_bytes + length;
  if (file.size() < data_at) return corrupt("the file is truncated");
  auto header = HeaderReader(file.substr(length_at + length_bytes, length)).read();
  if (!header) return corrupt("the header is not what NumPy writes");
  const std::string& type = *header->descr;
  if (*header->fortran_order) {
    return fail(ErrorCode::kInvalid,
                "npy: the array stands in Fortran's order: save np.ascontiguousarray(a)");
  }
  constexpr std::string_view kTypes[] = {"<f2", "<f4", "<f8", "|i1", "<i2", "<i4",
                                         "<i8", "|u1", "<u2", "<u4", "<u8"};
  if (std::ranges::find(kTypes, type) == std::end(kTypes)) {
    return fail(ErrorCode::kInvalid,
                text("npy: expected little-endian numbers, such as <f2, <f4 or <i8, found '",
                     type.substr(0, 16), "': save a.astype('<f4')"));
  }
  return NumberArray{std::move(*header->shape), type[1], static_cast<std::size_t>(type[2] - '0'),
                     file.substr(data_at)};
}

Result<void> check_bytes(const NumberArray& array) {
  std::uint64_t expected = array.number_bytes;
  for (const std::uint64_t extent : array.shape) {
    if (__builtin_mul_overflow(expected, extent, &expected))
      return corrupt("a shape beyond all memory");
  }
  if (array.data.size() < expected || array.data.size() > expected) {
    return corrupt(text("expected ", expected, " bytes of numbers, found ", array.data.size()));
  }
  return {};
}

template <class Number>
Number number_at(std::string_view data, std::uint64_t index) {
  Number value{};
  std::memcpy(&value, data.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

Result<void> check_feature_shape(std::uint64_t rows, std::uint64_t columns) {
  if (rows >= 1 && rows <= UINT32_MAX && columns >= 1 && columns <= kMostFeatureColumns) return {};
  return fail(ErrorCode::kInvalid, text("expected one row of 1 to ", kMostFeatureColumns,
                                        " features a sample, found ", rows, " rows of ", columns));
}

Result<NumberArray> parse_npy_array(std::string_view file) {
  ASSIGN_OR_RETURN(NumberArray array, open_array(file));
  TRY(check_bytes(array));
  return array;
}

double float_at(std::string_view data, std::size_t number_bytes, std::uint64_t index) {
  if (number_bytes == 2) return from_half(number_at<std::uint16_t>(data, index));
  return number_bytes == 4 ? number_at<float>(data, index) : number_at<double>(data, index);
}

std::int64_t integer_at(const NumberArray& array, std::uint64_t index) {
  const bool sign = array.kind == 'i';
  switch (array.number_bytes) {
    case 1:
      return sign ? number_at<std::int8_t>(array.data, index)
                  : number_at<std::uint8_t>(array.data, index);
    case 2:
      return sign ? number_at<std::int16_t>(array.data, index)
                  : number_at<std::uint16_t>(array.data, index);
    case 4:
      return sign ? number_at<std::int32_t>(array.data, index)
                  : std::int64_t{number_at<std::uint32_t>(array.data, index)};
    default:
      break;
  }
  const auto value = number_at<std::int64_t>(array.data, index);
  return sign || value >= 0 ? value : INT64_MIN;
}

Result<FeatureMatrix> parse_npy(std::string_view file) {
  ASSIGN_OR_RETURN(const NumberArray array, open_array(file));
  if (array.kind != 'f') {
    return fail(ErrorCode::kInvalid,
                text("npy: expected numbers of type <f2, <f4 or <f8, found '",
                     array.number_bytes == 1 ? '|' : '<', array.kind, array.number_bytes, "'"));
  }
  if (array.shape.size() != 2) {
    return fail(ErrorCode::kInvalid,
                text("npy: expected an array of two dimensions, a row for each sample; found ",
                     array.shape.size(), " dimensions"));
  }
  TRY(check_feature_shape(array.shape[0], array.shape[1]));
  TRY(check_bytes(array));
  return FeatureMatrix{array.shape[0], array.shape[1], array.number_bytes, array.data};
}

Result<std::vector<float>> unit_rows(const FeatureMatrix& matrix,
                                     std::span<const std::uint32_t> rows) {
  std::vector<float> out;
  out.reserve(rows.size() * matrix.columns);
  for (const std::uint32_t row : rows) {
    double squares = 0;
    const std::uint64_t first = row * matrix.columns;
    for (std::uint64_t i = 0; i < matrix.columns; ++i) {
      const double value = float_at(matrix.data, matrix.number_bytes, first + i);
      squares += value * value;
    }
    if (!std::isfinite(squares)) {
      return fail(
          ErrorCode::kInvalid,
          text("row ", row, " of the features holds a number that is not finite, or too large"));
    }
    const double inverse =
        squares >= std::numeric_limits<double>::min() ? 1 / std::sqrt(squares) : 0;
    for (std::uint64_t i = 0; i < matrix.columns; ++i) {
      out.push_back(
          static_cast<float>(float_at(matrix.data, matrix.number_bytes, first + i) * inverse));
    }
  }
  return out;
}

}  // namespace skerry::diffusion
