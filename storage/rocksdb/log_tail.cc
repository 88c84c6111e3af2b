// The format: blocks of 32 KiB; records of crc32c (masked, u32), length (u16), type (u8) and payload, none across a block's
// end; a longer entry is a First, Middles and a Last.
#include "storage/rocksdb/log_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/log.h"
#include "storage/files.h"

namespace skerry::storage {
namespace {

constexpr std::size_t kBlock = 32 << 10;
constexpr std::size_t kHeader = 7;
enum RecordType : unsigned char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0x82f63b78U : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  std::uint32_t crc = 0xffffffffU;
  for (const char each : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(each)) & 0xff];
  return ~crc;
}

std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8U; }

unsigned byte_at(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

std::size_t length_at(std::string_view log, std::size_t at) {
  return byte_at(log, at + 4) | byte_at(log, at + 5) << 8;
}

// Whether a record of this many payload bytes stands at `at`, by its checksum.
bool is_record(std::string_view log, std::size_t at, std::size_t length) {
  if (at + kHeader + length > log.size()) return false;
  const std::uint32_t stored = byte_at(log, at) | byte_at(log, at + 1) << 8 | byte_at(log, at + 2) << 16 |
                               static_cast<std::uint32_t>(byte_at(log, at + 3)) << 24;
  const unsigned type = byte_at(log, at + 6);
  return type >= kFull && type <= kLast && stored == masked(crc32c(log.substr(at + 6, 1 + length)));
}

// A torn record is the last thing in its log. Whole records after it, or a checksum that fits what is there, show that
// the length was damaged later.
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
      if (!is_last_and_short(log, at)) return std::nullopt;
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
    const bool newer = path.size() > newest.size() || (path.size() == newest.size() && path > newest);
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
  const bool is_cut = ::ftruncate(descriptor, static_cast<off_t>(*cut)) == 0 && ::fsync(descriptor) == 0;
  const int error_number = errno;
  ::close(descriptor);
  if (!is_cut) return system_error("cut", newest, error_number);
  return true;
}

}  // namespace skerry::storage
