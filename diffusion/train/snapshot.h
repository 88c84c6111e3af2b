// SPDX-License-Identifier: Apache-2.0
// Writes the state of a training as one safetensors image in place through a
// mapping: a memfd that the daemon reads, or a file. Does not include LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

struct SnapshotTensor {
  std::string name;
  storage::DType dtype = storage::DType::kF32;
  std::vector<std::uint64_t> shape;
  // Writes exactly the tensor's bytes, before SnapshotDevice::wait returns at
  // the latest.
  std::function<void(char* destination)> copy;
};

// The device's part in a snapshot; empty functions are not called.
struct SnapshotDevice {
  std::function<void()> wait;  // until all copies have finished
  // While the result lives, the device may copy to these bytes directly;
  // nullptr: it cannot.
  std::function<std::shared_ptr<void>(void* begin, std::uint64_t bytes)> pin;
};

// Writes images into one descriptor. It keeps one mapping as long as their size
// stays, since a card's driver takes long to pin its pages.
// THREADS: one at a time.
class SnapshotWriter {
 public:
  explicit SnapshotWriter(SnapshotDevice device = {}) : device_(std::move(device)) {}
  SnapshotWriter(SnapshotWriter&&) = delete;
  ~SnapshotWriter() { unmap(); }

  // Resizes the descriptor and fills it.
  // RETURNS: its size.
  // ON FAILURE: kExhausted if memory or disk is full; the content of the
  // descriptor is then undefined.
  Result<std::uint64_t> write(int descriptor, const std::vector<SnapshotTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

 private:
  Result<void> map(int descriptor, std::uint64_t bytes);
  void unmap();

  SnapshotDevice device_;
  char* mapped_ = nullptr;
  std::uint64_t bytes_ = 0, file_ = 0, file_system_ = 0;  // of the mapping
  std::shared_ptr<void> pinned_;
};

// RETURNS: the bytes that the image of these tensors takes.
Result<std::uint64_t> snapshot_image_bytes(const std::vector<SnapshotTensor>& tensors,
                                           const std::map<std::string, std::string>& metadata);
// Writes the image to PATH.partial, syncs it and renames it.
Result<void> write_snapshot_file(const std::string& path,
                                 const std::vector<SnapshotTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata,
                                 SnapshotDevice device = {});

}  // namespace skerry::diffusion
