// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of tensors in the memory of the host or of a card, for
// benchmarks and tests. Does not include LibTorch.
// THREADS: it counts the allocations of the thread that made it, and those of
// autograd for that thread.
#pragma once

#include <cstdint>
#include <memory>

namespace skerry::diffusion {

class MemoryMeter {
 public:
  explicit MemoryMeter(bool on_card = false);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // RETURNS: the peak of bytes held at one time by tensors allocated since it
  // was made.
  std::uint64_t peak_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
