#include "diffusion/snapshot.h"

#include <fcntl.h>
#include <sys/mman.h>
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
    views.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .data = {}});
  }
  return storage::safetensors_header(views, metadata);
}

std::uint64_t image_bytes(const std::string& header, const std::vector<SnapshotTensor>& tensors) {
  std::uint64_t bytes = header.size();
  for (const SnapshotTensor& tensor : tensors) bytes += tensor_bytes(tensor);
  return bytes;
}

// Space is reserved before the mapping is written, so that a full disk is an error and not a SIGBUS.
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

Result<std::uint64_t> write_snapshot_image(int descriptor, const std::vector<SnapshotTensor>& tensors,
                                           const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string header, header_of(tensors, metadata));
  const std::uint64_t bytes = image_bytes(header, tensors);
  TRY(reserve(descriptor, bytes));
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return system_error("map", "the snapshot", errno);
  char* destination = static_cast<char*>(mapped);
  std::memcpy(destination, header.data(), header.size());
  destination += header.size();
  for (const SnapshotTensor& tensor : tensors) {
    tensor.copy(destination);
    destination += tensor_bytes(tensor);
  }
  ::munmap(mapped, bytes);
  return bytes;
}

Result<void> write_snapshot_file(const std::string& path, const std::vector<SnapshotTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  const std::string partial = path + ".partial";
  const int descriptor = ::open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error("create", partial, errno);
  Result<std::uint64_t> written = write_snapshot_image(descriptor, tensors, metadata);
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
