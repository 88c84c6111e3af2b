// SPDX-License-Identifier: Apache-2.0
#include "storage/testing/memory_files.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace skerry::storage {
namespace {

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

class MemoryFiles::Handle final : public File {
 public:
  Handle(MemoryFiles& files, Content content) : files_(files), content_(std::move(content)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<char> bytes) const override {
    const std::lock_guard lock(files_.mutex_);
    const std::uint64_t begin = std::min<std::uint64_t>(offset, content_->size());
    return content_->copy(bytes.data(), bytes.size(), begin);
  }

  Result<void> write_at(std::uint64_t offset, std::string_view bytes) override {
    const std::lock_guard lock(files_.mutex_);
    if (content_->size() < offset + bytes.size())
      TRY(files_.grow(*content_, offset + bytes.size()));
    content_->replace(offset, bytes.size(), bytes);
    return {};
  }

  Result<std::uint64_t> size() const override {
    const std::lock_guard lock(files_.mutex_);
    return content_->size();
  }

  Result<void> resize(std::uint64_t bytes) override {
    const std::lock_guard lock(files_.mutex_);
    if (content_->size() < bytes) return files_.grow(*content_, bytes);
    content_->resize(bytes);
    return {};
  }

  Result<void> sync() override { return {}; }

 private:
  MemoryFiles& files_;
  Content content_;
};

std::uint64_t MemoryFiles::used() const {
  std::uint64_t bytes = 0;
  for (const auto& [path, content] : files_) bytes += content->size();
  return bytes;
}

Result<void> MemoryFiles::grow(std::string& content, std::uint64_t bytes) {
  const bool is_bounded = capacity_bytes_ != std::numeric_limits<std::uint64_t>::max();
  if (is_bounded && used() + bytes - content.size() > capacity_bytes_)
    return system_error("write", "a file in memory", ENOSPC);
  content.resize(bytes);
  return {};
}

void MemoryFiles::set_capacity(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

void MemoryFiles::damage(const std::string& path, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  std::string& content = *files_.at(path);
  SKERRY_CHECK(offset < content.size(), path, " has no byte at ", offset);
  content[offset] ^= 1;
}

void MemoryFiles::copy_from(const MemoryFiles& other) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  files_.clear();
  for (const auto& [path, content] : other.files_)
    files_[path] = std::make_shared<std::string>(*content);
  folders_ = other.folders_;
}

Result<std::unique_ptr<File>> MemoryFiles::open(const std::string& path, Open how) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  if (how == Open::kRead) {
    if (found == files_.end()) return system_error("open", path, ENOENT);
  } else if (!folders_.contains(folder_of(path))) {
    return system_error("create", path, ENOENT);
  }
  Content& content = found == files_.end() ? files_[path] : found->second;
  if (content == nullptr) content = std::make_shared<std::string>();
  if (how == Open::kCreate) content->clear();
  return std::make_unique<Handle>(*this, content);
}

bool MemoryFiles::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(path) || folders_.contains(path);
}

Result<void> MemoryFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  auto moved = files_.extract(from);
  if (moved.empty()) return system_error("rename", from, ENOENT);
  files_.insert_or_assign(to, std::move(moved.mapped()));
  return {};
}

Result<void> MemoryFiles::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (files_.erase(path) == 0) return system_error("remove", path, ENOENT);
  return {};
}

Result<void> MemoryFiles::create_folder(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  for (std::string at = folder;
       !at.empty() && folders_.insert(at).second && at.find('/') != std::string::npos;)
    at = folder_of(at);
  return {};
}

Result<std::vector<std::string>> MemoryFiles::list(const std::string& folder) const {
  const std::lock_guard lock(mutex_);
  if (!folders_.contains(folder)) return system_error("list", folder, ENOENT);
  std::vector<std::string> names;
  for (auto at = files_.lower_bound(folder + "/");
       at != files_.end() && folder_of(at->first) == folder; ++at)
    names.push_back(at->first.substr(folder.size() + 1));
  return names;
}

Result<void> MemoryFiles::sync_folder(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  if (!folders_.contains(folder)) return system_error("open folder", folder, ENOENT);
  return {};
}

Result<std::uint64_t> MemoryFiles::free_bytes(const std::string&) const {
  const std::lock_guard lock(mutex_);
  return capacity_bytes_ - std::min(capacity_bytes_, used());
}

}  // namespace skerry::storage
