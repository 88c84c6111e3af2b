// SPDX-License-Identifier: Apache-2.0
#include "storage/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry::storage {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", path, errno);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error = errno;
    ::close(descriptor);
    return system_error("inspect", path, error);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return fail(ErrorCode::kInvalid, text(path, " is not a regular file"));
  }
  auto mapped = map(descriptor, static_cast<std::uint64_t>(status.st_size), path);
  ::close(descriptor);
  return mapped;
}

Result<MappedFile> MappedFile::map(int descriptor, std::uint64_t bytes,
                                   const std::string& shown_as) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return system_error("inspect", shown_as, errno);
  // A page beyond the end would be a SIGBUS at the first read.
  if (static_cast<std::uint64_t>(status.st_size) < bytes) {
    return fail(ErrorCode::kCorrupt, text(shown_as, " holds ", status.st_size, " bytes where ",
                                          bytes, " were announced"));
  }
  MappedFile file;
  if (bytes == 0) return file;
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return system_error("map", shown_as, errno);
  file.address_ = address;
  file.size_ = bytes;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (address_ != nullptr) ::munmap(address_, size_);
}

void MappedFile::release(std::uint64_t offset, std::uint64_t length) const {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = (offset + page - 1) / page * page;
  const std::uint64_t end = std::min<std::uint64_t>(offset + length, size_) / page * page;
  if (begin < end) ::madvise(static_cast<char*>(address_) + begin, end - begin, MADV_DONTNEED);
}

Result<UniqueFd> open_scratch_file(const std::string& folder) {
  std::string name = folder + "/scratch.XXXXXX";
  UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return system_error("make a scratch file in", folder, errno);
  ::unlink(name.c_str());
  return file;
}

Result<void> write_all(int descriptor, std::string_view bytes, const std::string& shown_as) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("write", shown_as, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> write_at(int descriptor, std::uint64_t offset, std::string_view bytes,
                      const std::string& shown_as) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("write", shown_as, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Result<void> sync_file(int descriptor, const std::string& shown_as) {
  if (::fsync(descriptor) == 0) return {};
  return fail(ErrorCode::kIo, system_error("sync", shown_as, errno).message);
}

Result<void> sync_folder(const std::string& folder) {
  const std::string shown = folder.empty() ? "." : folder;
  const int descriptor = ::open(shown.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open folder", shown, errno);
  Result<void> synced = sync_file(descriptor, shown);
  ::close(descriptor);
  return synced;
}

Result<PartialFile> PartialFile::create(const std::string& path, Files& files) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.open(path + ".partial", Files::Open::kCreate));
  return PartialFile(path, std::move(file), files);
}

PartialFile::PartialFile(std::string path, std::unique_ptr<File> file, Files& files)
    : path_(std::move(path)),
      partial_(path_ + ".partial"),
      file_(std::move(file)),
      files_(&files) {}

PartialFile::~PartialFile() {
  if (!file_) return;
  file_.reset();
  [[maybe_unused]] const Result<void> removed = files_->remove(partial_);
}

Result<void> PartialFile::append(std::string_view bytes) {
  TRY(file_->write_at(appended_, bytes));
  appended_ += bytes.size();
  return {};
}

Result<void> PartialFile::commit_as(const std::string& path) {
  path_ = path;
  return commit();
}

Result<void> PartialFile::commit() {
  SKERRY_CHECK(file_ != nullptr, "commit is called once");
  TRY(file_->sync());
  TRY(files_->rename(partial_, path_));
  file_.reset();
  return files_->sync_folder(std::filesystem::path(path_).parent_path().string());
}

}  // namespace skerry::storage
