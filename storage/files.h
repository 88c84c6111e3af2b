// SPDX-License-Identifier: Apache-2.0
// Files at the edge of the operating system: read at any offset, mapped,
// written whole or not at all.
//
// ObjectStore and the chunk files reach the disk through Files. It has three
// versions under one conformance suite (files_conformance.h):
// - the operating system's,
// - one in memory (memory_files.h),
// - one that fails as disks do (faulty_files.h).
//
// ON FAILURE: kNotFound, kUnauthorised (permission), kExhausted (disk or quota
// full), else kIo. The message names the file.
// THREADS: one at a time per object. Exceptions: any thread may use Files, and
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
#include "base/unique_fd.h"

namespace skerry::storage {

// One open file. It stays the same file if its name changes or is removed.
class File {
 public:
  virtual ~File() = default;
  // RETURNS: the number of bytes read, fewer than asked for at the end of the
  // file.
  virtual Result<std::size_t> read_at(std::uint64_t offset, std::span<char> bytes) const = 0;
  // REQUIRES: the file is open for writing; so for all below. A gap before
  // `offset` reads as zeros.
  virtual Result<void> write_at(std::uint64_t offset, std::string_view bytes) = 0;
  virtual Result<std::uint64_t> size() const = 0;
  virtual Result<void> resize(std::uint64_t bytes) = 0;
  // Makes everything written to the file durable.
  // ON FAILURE: kIo, also on a full disk. The kernel may have dropped the
  // bytes, and a later sync would succeed.
  virtual Result<void> sync() = 0;
  // Starts to write these bytes to the disk, to shorten sync(). A hint.
  virtual void start_writing(std::uint64_t /*offset*/, std::uint64_t /*length*/) {}
  // Drops the kernel's cache of the file, so that later reads come from the
  // disk. A hint.
  virtual void forget_cached() {}
  // RETURNS: the descriptor, which this object still owns; −1 if the file has
  // none.
  virtual int descriptor() const { return -1; }
};

class Files {
 public:
  enum class Open {
    kRead,
    kWrite,   // to read as well; creates a missing file
    kCreate,  // the same; truncates an existing file
  };
  virtual ~Files() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path, Open how) = 0;
  virtual bool exists(const std::string& path) const = 0;
  // Replaces a file of that name. Durable after sync_folder().
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> remove(const std::string& path) = 0;
  // Creates the folder and its parents. Does nothing if it exists.
  virtual Result<void> create_folder(const std::string& folder) = 0;
  // RETURNS: the names in the folder, in no order.
  virtual Result<std::vector<std::string>> list(const std::string& folder) const = 0;
  // Makes a rename or a new name in `folder` durable. ON FAILURE: as
  // File::sync().
  virtual Result<void> sync_folder(const std::string& folder) = 0;
  // RETURNS: the bytes that an unprivileged user may still write on the file
  // system of `folder`.
  virtual Result<std::uint64_t> free_bytes(const std::string& folder) const = 0;
};

// The operating system's files. They keep no state of their own.
Files& posix_files();

// The bytes that an unprivileged user may still write on the file system of
// `folder`.
Result<std::uint64_t> free_bytes(const std::string& folder);

// A read-only mapping, closed with the object. An empty file is an empty view.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::string& path);
  // Maps the first `bytes` of a descriptor that the caller keeps.
  // ON FAILURE: kCorrupt if the file is shorter.
  static Result<MappedFile> map(int descriptor, std::uint64_t bytes, const std::string& shown_as);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }
  // Tells the kernel that these pages are not needed again soon, so that a long
  // read does not fill memory.
  void release(std::uint64_t offset, std::uint64_t length) const;

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

// Opens a new file in `folder` that has no name. It is gone once it is closed.
Result<UniqueFd> open_scratch_file(const std::string& folder);

// Write all bytes to a descriptor, at its position or at an offset.
Result<void> write_all(int descriptor, std::string_view bytes, const std::string& shown_as);
Result<void> write_at(int descriptor, std::uint64_t offset, std::string_view bytes,
                      const std::string& shown_as);

// A file that appears under its name only when it is complete: PATH.partial,
// sync, rename, sync of the folder. If it is destroyed without commit(), no
// file remains.
// LIFETIME: `files` outlives it.
class PartialFile {
 public:
  static Result<PartialFile> create(const std::string& path, Files& files = posix_files());
  PartialFile(PartialFile&& other) noexcept = default;
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();
  // Appends the bytes.
  Result<void> append(std::string_view bytes);
  Result<void> commit();  // once; a failure removes the file
  // The same, under a name in that folder that the caller chooses only now.
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

// As File::sync(), for a descriptor.
Result<void> sync_file(int descriptor, const std::string& shown_as);

// As Files::sync_folder().
Result<void> sync_folder(const std::string& folder);

}  // namespace skerry::storage
