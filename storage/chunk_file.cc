// SPDX-License-Identifier: Apache-2.0
#include "storage/chunk_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "storage/store.h"

namespace skerry::storage {
namespace {

Result<std::string> read_at(const File& file, const Placement& placement) {
  std::string bytes(placement.chunk.bytes, '\0');
  ASSIGN_OR_RETURN(const std::size_t read, file.read_at(placement.offset, bytes));
  bytes.resize(read);
  return bytes;
}

}  // namespace

Result<ChunkWriter> ChunkWriter::open(const std::string& path, Layout layout, Files& files) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.open(path + ".partial", Files::Open::kWrite));
  ASSIGN_OR_RETURN(const std::uint64_t found, file->size());
  TRY(file->resize(layout.total_bytes));
  // After a failed sync, the cache may still show bytes that never reached the
  // disk: present() must read the disk.
  if (found > 0) file->forget_cached();
  TRY(file->write_at(0, layout.prefix));
  return ChunkWriter(path, std::move(layout), std::move(file), files, found == 0);
}

ChunkWriter::ChunkWriter(std::string path, Layout layout, std::unique_ptr<File> file, Files& files,
                         bool is_new)
    : path_(std::move(path)),
      layout_(std::move(layout)),
      file_(std::move(file)),
      files_(&files),
      is_new_(is_new) {
  for (std::size_t i = 0; i < layout_.placements.size(); ++i)
    by_hash_[layout_.placements[i].chunk.hash].push_back(i);
}

std::vector<Hash> ChunkWriter::present() const {
  std::vector<Hash> intact;
  if (is_new_) return intact;
  for (const auto& [hash, places] : by_hash_) {
    bool whole = true;
    for (const std::size_t place : places) {
      const Result<std::string> bytes = read_at(*file_, layout_.placements[place]);
      whole = whole && bytes && blake2b(*bytes) == hash;
    }
    if (whole) intact.push_back(hash);
  }
  return intact;
}

Result<void> ChunkWriter::put(const Hash& hash, std::string_view bytes) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end())
    return fail(ErrorCode::kInvalid, text("chunk ", hash.short_hex(), " is not of ", path_));
  for (const std::size_t place : found->second) {
    TRY(file_->write_at(layout_.placements[place].offset, bytes));
  }
  return {};
}

Result<std::string> ChunkWriter::read(const Hash& hash) const {
  const auto found = by_hash_.find(hash);
  if (found != by_hash_.end()) {
    ASSIGN_OR_RETURN(std::string bytes, read_at(*file_, layout_.placements[found->second.front()]));
    if (blake2b(bytes) == hash) return bytes;
  }
  return fail(ErrorCode::kNotFound,
              text("chunk ", hash.short_hex(), " of ", path_, " is not here"));
}

Result<void> ChunkWriter::commit() {
  TRY(file_->sync());
  TRY(files_->rename(path_ + ".partial", path_));
  return files_->sync_folder(std::filesystem::path(path_).parent_path().string());
}

Result<void> ChunkWriter::discard(const std::string& path, Files& files) {
  const std::string partial = path + ".partial";
  return files.exists(partial) ? files.remove(partial) : Result<void>();
}

Result<ChunkReader> ChunkReader::open(const std::string& path, const Layout& layout, Files& files) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.open(path, Files::Open::kRead));
  ChunkReader reader(path, std::move(file));
  for (const Placement& placement : layout.placements)
    reader.by_hash_[placement.chunk.hash].push_back(placement);
  return reader;
}

Result<std::span<const Placement>> ChunkReader::places_of(const Hash& hash) const {
  const auto found = by_hash_.find(hash);
  if (found != by_hash_.end()) return found->second;
  return fail(ErrorCode::kNotFound, text("chunk ", hash.short_hex(), " is not of ", path_));
}

Result<std::string> ChunkReader::read(const Hash& hash) const {
  ASSIGN_OR_RETURN(std::vector<std::string> bytes, read_each({&hash, 1}));
  return std::move(bytes.front());
}

Result<std::vector<std::string>> ChunkReader::read_each(std::span<const Hash> hashes) const {
  std::vector<std::string> chunks;
  for (const Hash& hash : hashes) {
    ASSIGN_OR_RETURN(const std::span<const Placement> places, places_of(hash));
    ASSIGN_OR_RETURN(std::string bytes, read_at(*file_, places.front()));
    chunks.push_back(std::move(bytes));
  }
  TRY(check_hashes(std::vector<std::string_view>(chunks.begin(), chunks.end()), hashes, path_));
  return chunks;
}

Result<void> ChunkReader::check_prefix(const Layout& layout) const {
  std::string bytes(layout.prefix.size(), '\0');
  ASSIGN_OR_RETURN(const std::size_t read, file_->read_at(0, bytes));
  bytes.resize(read);
  if (bytes == layout.prefix) return {};
  return fail(ErrorCode::kCorrupt, text("the header of ", path_, " is damaged"));
}

Result<void> ChunkReader::check_each(std::span<const Hash> hashes,
                                     std::vector<char>& scratch) const {
  std::size_t largest = 0;
  for (const Hash& hash : hashes) {
    ASSIGN_OR_RETURN(const std::span<const Placement> places, places_of(hash));
    largest = std::max<std::size_t>(largest, places.front().chunk.bytes);
  }
  scratch.resize(hashes.size() * largest);
  std::vector<std::string_view> chunks;
  std::vector<Hash> expected;
  for (const Hash& hash : hashes) {
    ASSIGN_OR_RETURN(const std::span<const Placement> places, places_of(hash));
    for (const Placement& place : places) {
      const auto bytes = std::span(scratch).subspan(chunks.size() * largest, place.chunk.bytes);
      ASSIGN_OR_RETURN(const std::size_t read, file_->read_at(place.offset, bytes));
      chunks.emplace_back(bytes.data(), read);
      expected.push_back(hash);
      if (chunks.size() < hashes.size()) continue;
      TRY(check_hashes(chunks, expected, path_));
      chunks.clear();
      expected.clear();
    }
  }
  return check_hashes(chunks, expected, path_);
}

}  // namespace skerry::storage
