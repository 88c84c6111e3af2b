// SPDX-License-Identifier: Apache-2.0
// Files of the operating system.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/unique_fd.h"
#include "storage/files.h"

namespace skerry::storage {
namespace {

class PosixFile final : public File {
 public:
  PosixFile(UniqueFd descriptor, std::string path)
      : fd_(std::move(descriptor)), path_(std::move(path)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<char> bytes) const override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::pread(fd_.get(), bytes.data() + done, bytes.size() - done,
                                    static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return system_error("read", path_, errno);
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }

  Result<void> write_at(std::uint64_t offset, std::string_view bytes) override {
    return storage::write_at(fd_.get(), offset, bytes, path_);
  }

  Result<std::uint64_t> size() const override {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) return system_error("inspect", path_, errno);
    return static_cast<std::uint64_t>(status.st_size);
  }

  Result<void> resize(std::uint64_t bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0)
      return system_error("size", path_, errno);
    return {};
  }

  Result<void> sync() override { return sync_file(fd_.get(), path_); }

  void start_writing(std::uint64_t offset, std::uint64_t length) override {
    ::sync_file_range(fd_.get(), static_cast<off64_t>(offset), static_cast<off64_t>(length),
                      SYNC_FILE_RANGE_WRITE);
  }

  void forget_cached() override { ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

  int descriptor() const override { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string path_;
};

class PosixFiles final : public Files {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, Open how) override {
    const int flags = how == Open::kRead    ? O_RDONLY
                      : how == Open::kWrite ? O_RDWR | O_CREAT
                                            : O_RDWR | O_CREAT | O_TRUNC;
    UniqueFd descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
    if (!descriptor) return system_error(how == Open::kRead ? "open" : "create", path, errno);
    return std::make_unique<PosixFile>(std::move(descriptor), path);
  }

  bool exists(const std::string& path) const override { return ::access(path.c_str(), F_OK) == 0; }

  Result<void> rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error("rename", from, errno);
    return {};
  }

  Result<void> remove(const std::string& path) override {
    if (std::remove(path.c_str()) != 0) return system_error("remove", path, errno);
    return {};
  }

  Result<void> create_folder(const std::string& folder) override {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return system_error("create folder", folder, error.value());
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& folder) const override {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      names.push_back(entry.path().filename().string());
    if (error) return system_error("list", folder, error.value());
    return names;
  }

  Result<void> sync_folder(const std::string& folder) override {
    return storage::sync_folder(folder);
  }

  Result<std::uint64_t> free_bytes(const std::string& folder) const override {
    return storage::free_bytes(folder);
  }
};

}  // namespace

Result<std::uint64_t> free_bytes(const std::string& folder) {
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0) return system_error("inspect", folder, errno);
  return std::uint64_t{system.f_bavail} * system.f_frsize;
}

Files& posix_files() {
  static PosixFiles files;
  return files;
}

}  // namespace skerry::storage
