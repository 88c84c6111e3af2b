// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/snapshot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/system_error.h"

namespace skerry::diffusion {
namespace {

std::uint64_t tensor_bytes(const SnapshotTensor& tensor) {
  std::uint64_t bytes = storage::bytes_of(tensor.dtype);
  for (const std::uint64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

Result<std::string> header_of(const std::vector<SnapshotTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<storage::TensorView> views;
  views.reserve(tensors.size());
  for (const SnapshotTensor& tensor : tensors) {
    views.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .data = {}});
  }
  return storage::safetensors_header(views, metadata);
}

std::uint64_t image_bytes(const std::string& header, const std::vector<SnapshotTensor>& tensors) {
  std::uint64_t bytes = header.size();
  for (const SnapshotTensor& tensor : tensors) bytes += tensor_bytes(tensor);
  return bytes;
}

// Space is reserved before the mapping is written, so that a full disk is an
// error and not a SIGBUS.
Result<void> reserve(int descriptor, std::uint64_t bytes) {
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
    return system_error("resize", "the snapshot", errno);
  const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  if (error != 0) return system_error("reserve space for", "the snapshot", error);
  return {};
}

}  // namespace

Result<std::uint64_t> snapshot_image_bytes(const std::vector<SnapshotTensor>& tensors,
                                           const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string header, header_of(tensors, metadata));
  return image_bytes(header, tensors);
}

void SnapshotWriter::unmap() {
  pinned_.reset();  // pages are unpinned while they are mapped
  if (mapped_ != nullptr) ::munmap(mapped_, bytes_);
  mapped_ = nullptr;
}

Result<void> SnapshotWriter::map(int descriptor, std::uint64_t bytes) {
  struct ::stat file {};
  if (::fstat(descriptor, &file) != 0) return system_error("look at", "the snapshot", errno);
  // The mapping keeps the file, so that no other has its number.
  const bool is_it = mapped_ != nullptr && file.st_ino == file_ && file.st_dev == file_system_ &&
                     bytes == bytes_ && static_cast<std::uint64_t>(file.st_size) == bytes;
  if (is_it) return {};
  unmap();
  TRY(reserve(descriptor, bytes));
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return system_error("map", "the snapshot", errno);
  mapped_ = static_cast<char*>(mapped);
  bytes_ = bytes;
  file_ = file.st_ino;
  file_system_ = file.st_dev;
  if (device_.pin) pinned_ = device_.pin(mapped_, bytes_);
  return {};
}

Result<std::uint64_t> SnapshotWriter::write(int descriptor,
                                            const std::vector<SnapshotTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string header, header_of(tensors, metadata));
  const std::uint64_t bytes = image_bytes(header, tensors);
  TRY(map(descriptor, bytes));
  std::memcpy(mapped_, header.data(), header.size());
  char* destination = mapped_ + header.size();
  for (const SnapshotTensor& tensor : tensors) {
    tensor.copy(destination);
    destination += tensor_bytes(tensor);
  }
  if (device_.wait) device_.wait();
  return bytes;
}

Result<void> write_snapshot_file(const std::string& path,
                                 const std::vector<SnapshotTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata,
                                 SnapshotDevice device) {
  const std::string partial = path + ".partial";
  const int descriptor = ::open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error("create", partial, errno);
  Result<std::uint64_t> written =
      SnapshotWriter(std::move(device)).write(descriptor, tensors, metadata);
  if (written && ::fsync(descriptor) != 0) written = system_error("sync", partial, errno);
  ::close(descriptor);
  if (written && ::rename(partial.c_str(), path.c_str()) != 0)
    written = system_error("rename", partial, errno);
  if (!written) {
    ::unlink(partial.c_str());
    return Error(written.error());
  }
  return {};
}

}  // namespace skerry::diffusion
