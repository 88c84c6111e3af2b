// SPDX-License-Identifier: Apache-2.0
#include "diffusion/testing/emulated_card.h"

#include <barrier>
#include <bit>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace skerry::diffusion::emulated {
namespace {

struct Index {
  unsigned x = 0, y = 0;
};
thread_local Index threadIdx, blockIdx;
Index blockDim, gridDim;

constexpr unsigned kMostThreads = 1024;
std::unique_ptr<std::barrier<>> block_barrier;
std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
float exchanged[kMostThreads];

void __syncthreads() { block_barrier->arrive_and_wait(); }
float __shfl_xor_sync(unsigned /*lanes*/, float value, int distance) {
  std::barrier<>& warp = *warp_barriers[threadIdx.x / 32];
  exchanged[threadIdx.x] = value;
  warp.arrive_and_wait();
  const float other = exchanged[threadIdx.x ^ static_cast<unsigned>(distance)];
  warp.arrive_and_wait();
  return other;
}
float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

}  // namespace

#define __global__
#define __launch_bounds__(threads)
#define __device__
#define __shared__ static
#include "diffusion/kernels/card_kernels.cu"
#undef __shared__
#undef __device__
#undef __launch_bounds__
#undef __global__

namespace {

template <class... Arguments>
Kernel kernel(void (*function)(Arguments...)) {
  return [function](void** arguments) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      function(*static_cast<Arguments*>(arguments[i])...);
    }
    (std::index_sequence_for<Arguments...>());
  };
}

}  // namespace

EmulatedCard::EmulatedCard() {
#define SKERRY_NAME(NAME) \
  kernels_[#NAME "_float"] = kernel(NAME##_float), kernels_[#NAME "_bf16"] = kernel(NAME##_bf16)
  SKERRY_NAME(modulate);
  SKERRY_NAME(modulate_backward);
  SKERRY_NAME(gated_modulate);
  SKERRY_NAME(gated_modulate_backward);
  SKERRY_NAME(add_gated);
  SKERRY_NAME(add_gated_backward);
  SKERRY_NAME(bias_gelu);
  SKERRY_NAME(bias_gelu_backward);
#undef SKERRY_NAME
}
void EmulatedCard::launch(const std::string& name, Grid grid, void* /*stream*/, void** arguments) {
  const Kernel& body = kernels_.at(name);
  blockDim = {grid.threads, 1};
  gridDim = {grid.columns, grid.rows};
  block_barrier = std::make_unique<std::barrier<>>(grid.threads);
  warp_barriers.clear();
  for (unsigned warp = 0; warp < grid.threads / 32; ++warp) {
    warp_barriers.push_back(std::make_unique<std::barrier<>>(32));
  }
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < grid.threads; ++thread) {
    threads.emplace_back([&, thread] {
      threadIdx = {thread, 0};
      for (unsigned y = 0; y < grid.rows; ++y) {
        for (unsigned x = 0; x < grid.columns; ++x) {
          blockIdx = {x, y};
          body(arguments);
          block_barrier->arrive_and_wait();
        }
      }
    });
  }
}

}  // namespace skerry::diffusion::emulated
