// SPDX-License-Identifier: Apache-2.0
// Files at the edge of the operating system: read at any place, mapped, written
// whole or not at all.
//
// ObjectStore and the chunk files reach the disk through Files, a seam of three
// versions under one conformance suite (files_conformance.h): the operating
// system's, memory's (memory_files.h), and one that fails as disks do
// (faulty_files.h).
//
// ON FAILURE: kNotFound, kUnauthorised (permission), kExhausted (disk or quota
// full), else kIo. The message names the file.
// THREADS: one thread at a time per object, except that any may use Files, and
// many may read one File or MappedFile.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/system_error.h"

namespace skerry::storage {

// One open file. It stays the same file when its name changes or goes.
class File {
 public:
  virtual ~File() = default;
  // RETURNS: how many bytes it read; fewer than asked for where the file ends.
  virtual Result<std::size_t> read_at(std::uint64_t offset, std::span<char> bytes) const = 0;
  // REQUIRES: opened for writing, as for all below. A gap before `offset` reads
  // as zeros.
  virtual Result<void> write_at(std::uint64_t offset, std::string_view bytes) = 0;
  virtual Result<std::uint64_t> size() const = 0;
  virtual Result<void> resize(std::uint64_t bytes) = 0;
  // Makes all that was written to the file durable.
  // ON FAILURE: kIo, also on a full disk. The kernel may have dropped the
  // bytes, and a later sync would succeed.
  virtual Result<void> sync() = 0;
  // Begins to write these bytes to the disk, so that sync() waits for less. A
  // hint.
  virtual void start_writing(std::uint64_t /*offset*/, std::uint64_t /*length*/) {}
  // Later reads come from the disk and not from the kernel's memory. A hint.
  virtual void forget_cached() {}
  // RETURNS: the descriptor, which stays this object's; −1 where the file has
  // none.
  virtual int descriptor() const { return -1; }
};

class Files {
 public:
  enum class Open {
    kRead,
    kWrite,   // to read as well; made where it is not there
    kCreate,  // the same; empty, whatever it held
  };
  virtual ~Files() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path, Open how) = 0;
  virtual bool exists(const std::string& path) const = 0;
  // Replaces what has the name. Durable after sync_folder().
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> remove(const std::string& path) = 0;
  // With those above it. One that is there already is left as it is.
  virtual Result<void> create_folder(const std::string& folder) = 0;
  // RETURNS: the names in the folder, in no order.
  virtual Result<std::vector<std::string>> list(const std::string& folder) const = 0;
  // Makes a rename or a new name in `folder` durable. ON FAILURE: as
  // File::sync().
  virtual Result<void> sync_folder(const std::string& folder) = 0;
  // RETURNS: what a user without privileges may still write on the file system
  // of `folder`.
  virtual Result<std::uint64_t> free_bytes(const std::string& folder) const = 0;
};

// The operating system's files. They keep no state of their own.
Files& posix_files();

// What a user without privileges may still write on the file system of
// `folder`.
Result<std::uint64_t> free_bytes(const std::string& folder);

// A read-only mapping, closed with the object. An empty file is an empty view.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::string& path);
  // Maps the first `bytes` of a descriptor that stays the caller's. kCorrupt if
  // the file is shorter.
  static Result<MappedFile> map(int descriptor, std::uint64_t bytes, const std::string& shown_as);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }
  // Tells the kernel that these pages will not be read again soon, so that a
  // long read does not fill memory.
  void release(std::uint64_t offset, std::uint64_t length) const;

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

// Writes all bytes to a descriptor, at its position or at an offset.
Result<void> write_all(int descriptor, std::string_view bytes, const std::string& shown_as);
Result<void> write_at(int descriptor, std::uint64_t offset, std::string_view bytes,
                      const std::string& shown_as);

// A file that appears under its name only when it is complete: PATH.partial,
// sync, rename, sync of the folder. Destroyed without commit(), it leaves
// nothing.
// LIFETIME: `files` outlives it.
class PartialFile {
 public:
  static Result<PartialFile> create(const std::string& path, Files& files = posix_files());
  PartialFile(PartialFile&& other) noexcept = default;
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();
  // Behind what was appended before.
  Result<void> append(std::string_view bytes);
  Result<void> commit();  // once; on failure the file is removed
  // The same under a name in that folder that is known only now.
  Result<void> commit_as(const std::string& path);
  File& file() { return *file_; }

 private:
  PartialFile(std::string path, std::unique_ptr<File> file, Files& files);
  std::string path_;
  std::string partial_;
  std::unique_ptr<File> file_;
  Files* files_;
  std::uint64_t appended_ = 0;
};

// As File::sync(), of a descriptor.
Result<void> sync_file(int descriptor, const std::string& shown_as);

// As Files::sync_folder().
Result<void> sync_folder(const std::string& folder);

}  // namespace skerry::storage
