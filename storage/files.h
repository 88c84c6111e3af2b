// Files at the edge of the operating system: mapped for reading, written whole or not at all.
// Failure rule: kNotFound, kUnauthorised (permission), kExhausted (disk or quota full), else kIo; each
// message names the file. Thread rule: one thread at a time per object, except that a MappedFile may be read
// by many.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/system_error.h"

namespace skerry::storage {

// What a user without privileges may still write on the file system of `folder`.
Result<std::uint64_t> free_bytes(const std::string& folder);

// A read-only mapping, closed with the object. An empty file is an empty view.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::string& path);
  // Maps the first `bytes` of a descriptor that stays the caller's. kCorrupt if the file is shorter.
  static Result<MappedFile> map(int descriptor, std::uint64_t bytes, const std::string& shown_as);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }
  // Tells the kernel that these pages will not be read again soon, so that a long read does not fill memory.
  void release(std::uint64_t offset, std::uint64_t length) const;

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

// Writes all bytes to a descriptor, at its position or at an offset.
Result<void> write_all(int descriptor, std::string_view bytes, const std::string& shown_as);
Result<void> write_at(int descriptor, std::uint64_t offset, std::string_view bytes,
                      const std::string& shown_as);

// Has the kernel begin to write these bytes to the disk, so that a later fsync waits for less. No promise, no error.
void start_writing(int descriptor, std::uint64_t offset, std::uint64_t length);

// A file that appears under its name only when it is complete: PATH.partial, fsync, rename, fsync of the
// folder. Destroyed without commit(), it leaves nothing.
class PartialFile {
 public:
  static Result<PartialFile> create(const std::string& path);
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();
  Result<void> append(std::string_view bytes);
  Result<void> commit();  // once; on failure the file is removed
  // The same under a name in that folder that is known only now.
  Result<void> commit_as(const std::string& path);
  int descriptor() const { return descriptor_; }

 private:
  PartialFile(std::string path, int descriptor);
  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

// On return everything written to the file so far is durable.
// ON FAILURE: kIo, also on a full disk. The kernel may have dropped what was written, and a later sync would succeed.
Result<void> sync_file(int descriptor, const std::string& shown_as);

// Makes a rename or a new name in `folder` durable. ON FAILURE: as sync_file().
Result<void> sync_folder(const std::string& folder);

}  // namespace skerry::storage
