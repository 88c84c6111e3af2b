// SPDX-License-Identifier: Apache-2.0
#include "storage/rocksdb/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/text.h"
#include "storage/files.h"

namespace skerry::storage {
namespace {

constexpr std::string_view kVersionLine = "skerry store 1\n";

}  // namespace

Result<StoreFolder> StoreFolder::claim(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return system_error("create folder", path, error.value());
  const std::string version = path + "/VERSION";
  const int descriptor = ::open(version.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error("open", version, errno);
  StoreFolder folder(path, descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::kConflict,
                text(path, " is in use by another process; stop it or choose another folder"));
  }
  TRY(folder.check_version());
  return folder;
}

Result<StoreFolder> StoreFolder::visit(const std::string& path) {
  const std::string version = path + "/VERSION";
  const int descriptor = ::open(version.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error("open", version, errno);
  StoreFolder folder(path, descriptor);
  TRY(folder.check_version());
  return folder;
}

StoreFolder::~StoreFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> StoreFolder::check_version() const {
  char buffer[64];
  const ssize_t count = ::pread(descriptor_, buffer, sizeof buffer, 0);
  if (count < 0) return system_error("read", path_ + "/VERSION", errno);
  const std::string_view found(buffer, static_cast<std::size_t>(count));
  if (found == kVersionLine) return {};
  if (!found.empty() || std::filesystem::exists(database())) {
    return fail(ErrorCode::kInvalid,
                text(path_, " was written by another version: expected \"",
                     kVersionLine.substr(0, kVersionLine.size() - 1), "\" in VERSION, found \"",
                     found.substr(0, found.find('\n')),
                     "\"; use the program that wrote it, or another folder"));
  }
  // New, or a first start that was interrupted before it stored anything.
  TRY(write_at(descriptor_, 0, kVersionLine, path_ + "/VERSION"));
  TRY(sync_file(descriptor_, path_ + "/VERSION"));
  return sync_folder(path_);
}

}  // namespace skerry::storage
