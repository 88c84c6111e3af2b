// SPDX-License-Identifier: Apache-2.0
// The state of a training as one safetensors image, written in place through a
// mapping: a memfd that the daemon reads, or a file. No LibTorch shows here.
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
  // Writes exactly the tensor's bytes, at the latest when SnapshotDevice::wait
  // returns.
  std::function<void(char* destination)> copy;
};

// How a device takes part; what is empty is not called.
struct SnapshotDevice {
  std::function<void()> wait;  // until all copies that were begun are done
  // While the result lives, the device may copy to these bytes by itself;
  // nullptr: it cannot.
  std::function<std::shared_ptr<void>(void* begin, std::uint64_t bytes)> pin;
};

// Writes images into a descriptor that stays the same, through one mapping as
// long as their size stays: a card's driver takes long to pin its pages.
// THREADS: one at a time.
class SnapshotWriter {
 public:
  explicit SnapshotWriter(SnapshotDevice device = {}) : device_(std::move(device)) {}
  SnapshotWriter(SnapshotWriter&&) = delete;
  ~SnapshotWriter() { unmap(); }

  // Resizes the descriptor and fills it. RETURNS: its size. ON FAILURE:
  // kExhausted if memory or disk is full; what the descriptor holds is
  // undefined.
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

// The bytes that write_snapshot_image will need.
Result<std::uint64_t> snapshot_image_bytes(const std::vector<SnapshotTensor>& tensors,
                                           const std::map<std::string, std::string>& metadata);
// The same into PATH.partial, synced and renamed.
Result<void> write_snapshot_file(const std::string& path,
                                 const std::vector<SnapshotTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata,
                                 SnapshotDevice device = {});

}  // namespace skerry::diffusion
