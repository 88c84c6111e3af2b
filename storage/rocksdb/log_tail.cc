// SPDX-License-Identifier: Apache-2.0
// The format is blocks of 32 KiB. A record has crc32c (masked, u32), length
// (u16), type (u8) and payload, and never crosses a block's end. A longer entry
// is a First, Middles and a Last.
#include "storage/rocksdb/log_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "base/log.h"
#include "storage/files.h"

namespace skerry::storage {
namespace {

constexpr std::size_t kBlock = 32 << 10;
constexpr std::size_t kHeader = 7;
constexpr std::size_t kSector = 512;      // what a disk writes as a whole, or not at all
constexpr std::size_t kTellingZeros = 4;  // fewer are looked at twice
enum RecordType : unsigned char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

std::uint32_t crc32c(std::string_view bytes, std::uint32_t crc = 0) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value & 1) != 0 ? value >> 1 ^ 0x82f63b78U : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  crc = ~crc;
  for (const char each : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(each)) & 0xff];
  return ~crc;
}

std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8U; }

unsigned byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

std::size_t length_at(std::string_view log, std::size_t at) {
  return byte_at(log, at + 4) | byte_at(log, at + 5) << 8;
}

std::uint32_t checksum_at(std::string_view log, std::size_t at) {
  return byte_at(log, at) | byte_at(log, at + 1) << 8 | byte_at(log, at + 2) << 16 |
         static_cast<std::uint32_t>(byte_at(log, at + 3)) << 24;
}

// Whether a record of this many payload bytes stands at `at`, by its checksum.
bool is_record(std::string_view log, std::size_t at, std::size_t length) {
  if (at + kHeader + length > log.size()) return false;
  const unsigned type = byte_at(log, at + 6);
  return type >= kFull && type <= kLast &&
         checksum_at(log, at) == masked(crc32c(log.substr(at + 6, 1 + length)));
}

// A torn record is the last one in its log. If whole records follow it, or a
// checksum fits, the length was damaged later.
bool is_last_and_short(std::string_view log, std::size_t at) {
  const std::size_t rest = log.size() - at;
  if (rest >= kHeader) {
    if (rest >= kHeader + length_at(log, at)) return false;
    if (is_record(log, at, rest - kHeader)) return false;
  }
  for (std::size_t next = at + 1; next + kHeader <= log.size(); ++next) {
    const std::size_t length = length_at(log, next);
    if (length > 0 && is_record(log, next, length)) return false;
  }
  return true;
}

bool is_zero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

// Whether the record at `at` has its checksum with other last bytes than these
// few.
bool fits_with_another_tail(std::string_view log, std::size_t at, std::size_t tail) {
  const std::uint32_t before = crc32c(log.substr(at + 6, tail - at - 6));
  std::string bytes(log.size() - tail, '\0');
  for (std::uint32_t value = 0; value < 1U << 8 * bytes.size(); ++value) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(value >> 8 * i);
    if (checksum_at(log, at) == masked(crc32c(bytes, before))) return true;
  }
  return false;
}

// A power loss can leave zeros where the last record's bytes never reached the
// disk: from any byte to the end, or in whole sectors. A record of a later
// entry shows that this one was synced. So do zeros that end before or begin
// after it.
bool is_last_and_zeroed(std::string_view log, std::size_t at) {
  const std::size_t end =
      std::min(at + kHeader + (log.size() - at < kHeader ? 0 : length_at(log, at)), log.size());
  for (std::size_t next = at + 1; next + kHeader <= log.size(); ++next) {
    const unsigned type = byte_at(log, next + 6);
    const bool begins_entry = type == kFull || type == kFirst;
    if (begins_entry && length_at(log, next) > 0 && is_record(log, next, length_at(log, next)))
      return false;
  }
  const std::size_t last = log.find_last_not_of('\0');
  const std::size_t tail = std::max(at, last == std::string_view::npos ? 0 : last + 1);
  if (tail < end && log.size() - tail >= kTellingZeros) return true;
  for (std::size_t sector = at / kSector * kSector; sector < end; sector += kSector) {
    const std::size_t from = std::max(sector, at);
    const std::string_view bytes = log.substr(from, sector + kSector - from);
    if (bytes.size() >= kTellingZeros && is_zero(bytes)) return true;
  }
  // The record itself may end in so few zeros.
  return tail < end && tail >= at + kHeader && end == log.size() &&
         fits_with_another_tail(log, at, tail);
}

}  // namespace

std::optional<std::uint64_t> torn_tail(std::string_view log) {
  std::size_t entry = 0;  // where the entry that is being read begins
  bool inside = false;
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t left_in_block = kBlock - at % kBlock;
    if (left_in_block < kHeader) {
      at += left_in_block;  // filled with zeros
      continue;
    }
    if (!inside) entry = at;
    const bool has_header = at + kHeader <= log.size();
    if (!has_header || !is_record(log, at, length_at(log, at))) {
      if (!is_last_and_short(log, at) && !is_last_and_zeroed(log, at)) return std::nullopt;
      return entry;
    }
    const unsigned type = byte_at(log, at + 6);
    const bool continues = type == kMiddle || type == kLast;
    if (continues != inside) return std::nullopt;
    inside = type == kFirst || type == kMiddle;
    at += kHeader + length_at(log, at);
  }
  return inside ? std::optional<std::uint64_t>(entry) : std::nullopt;
}

Result<bool> cut_torn_tail(const std::string& database) {
  std::error_code error;
  std::string newest;
  for (const auto& file : std::filesystem::directory_iterator(database, error)) {
    // Numbers of six digits or more: the longer, the newer.
    const std::string path = file.path().string();
    const bool newer =
        path.size() > newest.size() || (path.size() == newest.size() && path > newest);
    if (file.path().extension() == ".log" && newer) newest = path;
  }
  if (error) return system_error("list", database, error.value());
  if (newest.empty()) return false;
  std::optional<std::uint64_t> cut;
  {
    ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(newest));
    cut = torn_tail(mapped.bytes());
  }
  if (!cut) return false;
  log_warning("a crash cut a write short before it was acknowledged; it is dropped",
              {{"log", newest}, {"at", *cut}});
  const int descriptor = ::open(newest.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", newest, errno);
  const bool is_cut =
      ::ftruncate(descriptor, static_cast<off_t>(*cut)) == 0 && ::fsync(descriptor) == 0;
  const int error_number = errno;
  ::close(descriptor);
  if (!is_cut) return system_error("cut", newest, error_number);
  return true;
}

}  // namespace skerry::storage
