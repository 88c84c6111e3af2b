// SPDX-License-Identifier: Apache-2.0
#include "storage/tensorboard_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <filesystem>

#include "base/text.h"

namespace skerry::storage {
namespace {

template <class Number>
std::string little_endian(Number value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(value); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}

std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return little_endian(std::rotr(crc, 15) + 0xa282ead8U);
}

// Protobuf's wire format: a tag of field and kind, then the value.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string number_field(unsigned field, std::uint64_t value) {
  return varint(field << 3) + varint(value);
}
std::string bytes_field(unsigned field, std::string_view value) {
  return varint(field << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string double_field(unsigned field, double value) {
  return varint(field << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string float_field(unsigned field, float value) {
  return varint(field << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// Of Event, Summary and Summary.Value in TensorFlow's event.proto and
// summary.proto.
constexpr unsigned kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
constexpr unsigned kValue = 1, kTag = 1, kSimpleValue = 2;

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0x82f63b78U & (0U - (crc & 1)));
  }
  return ~crc;
}

Result<TensorBoardFile> TensorBoardFile::create(const std::string& folder, double unix_seconds) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail(ErrorCode::kIo, text("cannot make folder ", folder, ": ", error.message()));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string path =
      text(folder, "/events.out.tfevents.", static_cast<std::uint64_t>(unix_seconds), ".",
           host.data(), ".", ::getpid());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return fail(ErrorCode::kIo, text("cannot write ", path));
  TensorBoardFile made(path, std::move(file));
  TRY(made.write(double_field(kWallTime, unix_seconds) +
                 bytes_field(kFileVersion, "brain.Event:2")));
  return made;
}

Result<void> TensorBoardFile::add(std::uint64_t step, double unix_seconds,
                                  const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += bytes_field(
        kValue, bytes_field(kTag, tag) + float_field(kSimpleValue, static_cast<float>(value)));
  }
  return write(double_field(kWallTime, unix_seconds) + number_field(kStep, step) +
               bytes_field(kSummary, summary));
}

Result<void> TensorBoardFile::write(const std::string& event) {
  const std::string length = little_endian(std::uint64_t{event.size()});
  file_ << length << masked_crc(length) << event << masked_crc(event);
  file_.flush();
  if (file_) return {};
  return fail(ErrorCode::kIo, text("cannot write ", path_, ": is the disk full?"));
}

}  // namespace skerry::storage
