// The state of a training as one safetensors image, written in place through a mapping: a memfd that the
// daemon reads, or a file. No LibTorch shows here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

struct SnapshotTensor {
  std::string name;
  storage::DType dtype = storage::DType::kF32;
  std::vector<std::uint64_t> shape;
  std::function<void(char* destination)> copy;  // writes exactly the tensor's bytes
};

// The bytes that write_snapshot_image will need.
Result<std::uint64_t> snapshot_image_bytes(const std::vector<SnapshotTensor>& tensors,
                                           const std::map<std::string, std::string>& metadata);
// Resizes the descriptor, maps it and fills it. Returns its size. kExhausted where memory or disk is full.
Result<std::uint64_t> write_snapshot_image(int descriptor, const std::vector<SnapshotTensor>& tensors,
                                           const std::map<std::string, std::string>& metadata);
// The same into PATH.partial, synced and renamed.
Result<void> write_snapshot_file(const std::string& path, const std::vector<SnapshotTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata);

}  // namespace skerry::diffusion
