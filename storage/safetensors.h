// SPDX-License-Identifier: Apache-2.0
// Reads and writes safetensors, the format of shards, checkpoints, statistics
// and exported weights: u64-LE header length, JSON header, data.
//
// The reader is as strict as the reference implementation: no holes, no
// overlaps, no duplicates, dtype × shape = bytes, header at most 100 MB. It
// checks everything before it returns a view. Values are little-endian,
// contiguous, row-major.
//
// ON FAILURE: kCorrupt for bytes that break the format; kNotFound or kIo from
// the file system.
// THREADS: any; a Safetensors is immutable after open().
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::storage {

enum class DType { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };
std::size_t bytes_of(DType dtype);
std::string_view name_of(DType dtype);  // "U8", "F32", … as the format spells them
Result<DType> parse_dtype(std::string_view name);

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // offsets relative to the start of the data
  std::uint64_t end = 0;
  std::uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in order of offset
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;   // 8 + header length
  std::uint64_t total_bytes = 0;  // data_start + data
  const TensorInfo* find(std::string_view name) const;
};

// RETURNS: the number under `key` in the metadata; none if it is missing or is
// not just a number that `Number` holds.
template <class Number>
std::optional<Number> number_in(const std::map<std::string, std::string>& metadata,
                                const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  Number number{};
  const char* const end = found->second.data() + found->second.size();
  const auto [rest, error] = std::from_chars(found->second.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

// Parses and checks the header at the front of `bytes`. They hold the whole
// file, or at least its whole header. `file_bytes` is the size of the whole
// file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view bytes,
                                                   std::uint64_t file_bytes);

// RETURNS: the bytes of these values, as a tensor's data. LIFETIME: theirs.
template <class T>
std::string_view bytes_of_values(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// A tensor to write. LIFETIME: `data` outlives the call.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::string_view data;
};

// RETURNS: the header for these tensors in the given order, padded with spaces
// to a multiple of 8. Reads only names, types and shapes, so that data can
// follow as a stream.
Result<std::string> safetensors_header(const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata);

// Writes PATH.partial, syncs it and renames it. A failure leaves no file of the
// final name.
Result<void> write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                               const std::map<std::string, std::string>& metadata);
Result<std::string> encode_safetensors(const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata);

// A memory-mapped file (or mapped descriptor), checked.
// LIFETIME: views live as long as the object.
class Safetensors {
 public:
  static Result<Safetensors> open(const std::string& path);
  static Result<Safetensors> map(int descriptor,
                                 std::uint64_t bytes);  // the descriptor stays the caller's
  static Result<Safetensors> parse(std::string bytes);  // owns a copy in memory
  const SafetensorsHeader& header() const;
  std::string_view file() const;                           // every byte of the file
  Result<TensorView> tensor(std::string_view name) const;  // kNotFound
  TensorView view(const TensorInfo& info) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace skerry::storage
