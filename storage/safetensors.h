// SPDX-License-Identifier: Apache-2.0
// safetensors: the format of shards, checkpoints, statistics and exported
// weights.
// u64-LE header length, JSON header, data. The reader holds to the format as
// the reference implementation does: no holes, no overlaps, no duplicates,
// dtype × shape = bytes, header at most 100 MB; everything is checked before
// any view is handed out. Values are little-endian, contiguous, row-major.
// Failure rule: kCorrupt for bytes that break the format, kNotFound / kIo from
// the file system. Thread rule: a Safetensors is immutable after open.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

// What the metadata says of `key`; none where it says nothing, or not just a
// number that `Number` holds.
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

// Parses and checks the header at the front of `bytes`, which holds the whole
// file or at least all of its header; `file_bytes` is the size of the whole
// file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view bytes,
                                                   std::uint64_t file_bytes);

// A tensor to be written: `data` must outlive the call.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::string_view data;
};

// The header for these tensors in the given order, padded with spaces to a
// multiple of 8. Only names, types and shapes are read, so that data can follow
// as a stream.
Result<std::string> safetensors_header(const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata);

// Writes to PATH.partial, fsyncs, renames. A failure leaves no file of the
// final name.
Result<void> write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                               const std::map<std::string, std::string>& metadata);
Result<std::string> encode_safetensors(const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata);

// A memory-mapped file (or mapped descriptor), checked. Views live as long as
// the object.
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
