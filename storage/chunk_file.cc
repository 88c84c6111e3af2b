#include "storage/chunk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "storage/files.h"
#include "storage/store.h"

namespace skerry::storage {
namespace {

// How many there are of so many bytes: fewer where the file ends.
Result<std::size_t> read_at(int descriptor, std::uint64_t offset, std::span<char> bytes,
                            const std::string& shown_as) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(descriptor, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("read", shown_as, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

Result<std::string> read_at(int descriptor, const Placement& placement, const std::string& shown_as) {
  std::string bytes(placement.chunk.bytes, '\0');
  ASSIGN_OR_RETURN(const std::size_t read, read_at(descriptor, placement.offset, bytes, shown_as));
  bytes.resize(read);
  return bytes;
}

}  // namespace

Result<ChunkWriter> ChunkWriter::open(const std::string& path, Layout layout) {
  const std::string partial = path + ".partial";
  const int descriptor = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return system_error("create", partial, errno);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    ::close(descriptor);
    return system_error("inspect", partial, error);
  }
  ChunkWriter writer(path, std::move(layout), descriptor, status.st_size == 0);
  if (::ftruncate(descriptor, static_cast<off_t>(writer.layout_.total_bytes)) != 0) {
    return system_error("size", partial, errno);
  }
  // After a sync that failed, memory may still show what never reached the disk: present() must read the disk.
  if (!writer.is_new_) ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  TRY(write_at(descriptor, 0, writer.layout_.prefix, partial));
  return writer;
}

ChunkWriter::ChunkWriter(std::string path, Layout layout, int descriptor, bool is_new)
    : path_(std::move(path)), layout_(std::move(layout)), descriptor_(descriptor), is_new_(is_new) {
  for (std::size_t i = 0; i < layout_.placements.size(); ++i)
    by_hash_[layout_.placements[i].chunk.hash].push_back(i);
}

ChunkWriter::ChunkWriter(ChunkWriter&& other) noexcept
    : path_(std::move(other.path_)),
      layout_(std::move(other.layout_)),
      by_hash_(std::move(other.by_hash_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_new_(other.is_new_) {}

ChunkWriter::~ChunkWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::vector<Hash> ChunkWriter::present() const {
  std::vector<Hash> intact;
  if (is_new_) return intact;
  for (const auto& [hash, places] : by_hash_) {
    bool whole = true;
    for (const std::size_t place : places) {
      const Result<std::string> bytes = read_at(descriptor_, layout_.placements[place], path_);
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
    TRY(write_at(descriptor_, layout_.placements[place].offset, bytes, path_ + ".partial"));
  }
  return {};
}

Result<std::string> ChunkWriter::read(const Hash& hash) const {
  const auto found = by_hash_.find(hash);
  if (found != by_hash_.end()) {
    ASSIGN_OR_RETURN(std::string bytes,
                     read_at(descriptor_, layout_.placements[found->second.front()], path_ + ".partial"));
    if (blake2b(bytes) == hash) return bytes;
  }
  return fail(ErrorCode::kNotFound, text("chunk ", hash.short_hex(), " of ", path_, " is not here"));
}

Result<void> ChunkWriter::commit() {
  const std::string partial = path_ + ".partial";
  TRY(sync_file(descriptor_, partial));
  if (::rename(partial.c_str(), path_.c_str()) != 0) return system_error("rename", partial, errno);
  return sync_folder(std::filesystem::path(path_).parent_path().string());
}

Result<void> ChunkWriter::discard(const std::string& path) {
  const std::string partial = path + ".partial";
  if (::unlink(partial.c_str()) != 0 && errno != ENOENT) return system_error("remove", partial, errno);
  return {};
}

Result<ChunkReader> ChunkReader::open(const std::string& path, const Layout& layout) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", path, errno);
  ChunkReader reader(path, descriptor);
  for (const Placement& placement : layout.placements)
    reader.by_hash_.try_emplace(placement.chunk.hash, placement);
  return reader;
}

ChunkReader::ChunkReader(ChunkReader&& other) noexcept
    : path_(std::move(other.path_)),
      by_hash_(std::move(other.by_hash_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

ChunkReader::~ChunkReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<Placement> ChunkReader::place_of(const Hash& hash) const {
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
    ASSIGN_OR_RETURN(const Placement place, place_of(hash));
    ASSIGN_OR_RETURN(std::string bytes, read_at(descriptor_, place, path_));
    chunks.push_back(std::move(bytes));
  }
  TRY(check_hashes(std::vector<std::string_view>(chunks.begin(), chunks.end()), hashes, path_));
  return chunks;
}

Result<void> ChunkReader::check_each(std::span<const Hash> hashes, std::vector<char>& scratch) const {
  scratch.resize(hashes.size() * kMaxChunkBytes);
  std::vector<std::string_view> chunks;
  for (const Hash& hash : hashes) {
    ASSIGN_OR_RETURN(const Placement place, place_of(hash));
    const auto bytes = std::span(scratch).subspan(chunks.size() * kMaxChunkBytes, place.chunk.bytes);
    ASSIGN_OR_RETURN(const std::size_t read, read_at(descriptor_, place.offset, bytes, path_));
    chunks.emplace_back(bytes.data(), read);
  }
  return check_hashes(chunks, hashes, path_);
}

}  // namespace skerry::storage
