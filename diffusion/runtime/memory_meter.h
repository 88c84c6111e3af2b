// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of tensors in the memory of the host, or of a card: for
// benchmarks and tests. No LibTorch shows here. Thread rule: it counts what the
// thread that made it allocates, and what autograd allocates for it.
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

  // The most that tensors born since it was made have held at one time.
  std::uint64_t peak_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
