// SPDX-License-Identifier: Apache-2.0
#include "diffusion/testing/emulated_card.h"

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace skerry::diffusion::emulated {
namespace {

struct Index {
  unsigned x = 0, y = 0;
};
Index threadIdx, blockIdx, blockDim, gridDim;

constexpr unsigned kMostThreads = 1024, kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{64} << 10;

enum class At { kWork, kItsWarp, kItsBlock, kEnd };  // what a thread does, or waits for

// A thread of the block at work, on a stack of its own. A context enters that
// stack; from then on jumps go between, which need no system call.
struct Lane {
  ucontext_t context{};
  jmp_buf place{};
  bool has_begun = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  At at = At::kEnd;
  int exchanges = 0;
};
std::vector<Lane> lanes;
jmp_buf scheduler;
const Kernel* body = nullptr;
void** body_arguments = nullptr;
float exchanged[2][kMostThreads];

void run_lane() {
  (*body)(body_arguments);
  lanes[threadIdx.x].at = At::kEnd;
  ::_longjmp(scheduler, 1);
}
void wait_at(At place) {
  Lane& lane = lanes[threadIdx.x];
  lane.at = place;
  if (::_setjmp(lane.place) == 0) ::_longjmp(scheduler, 1);
}
void resume(unsigned thread) {
  threadIdx = {thread, 0};
  Lane& lane = lanes[thread];
  lane.at = At::kWork;
  if (::_setjmp(scheduler) != 0) return;
  if (lane.has_begun) ::_longjmp(lane.place, 1);
  lane.has_begun = true;
  ::setcontext(&lane.context);
}

void __syncthreads() { wait_at(At::kItsBlock); }
float __shfl_xor_sync(unsigned /*lanes*/, float value, int distance) {
  float* const slots = exchanged[lanes[threadIdx.x].exchanges++ % 2];
  slots[threadIdx.x] = value;
  wait_at(At::kItsWarp);
  return slots[threadIdx.x ^ static_cast<unsigned>(distance)];
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
  SKERRY_NAME(sum_parts);
  SKERRY_NAME(bias_gelu);
  SKERRY_NAME(bias_gelu_backward);
#undef SKERRY_NAME
}

namespace {

// The warp's threads, up to where all of them have ended or wait for the block.
void run_warp(unsigned warp) {
  for (bool is_waiting = true; is_waiting;) {
    is_waiting = false;
    for (unsigned thread = warp * kWarp; thread < (warp + 1) * kWarp; ++thread) {
      if (lanes[thread].at == At::kItsWarp) resume(thread);
      is_waiting |= lanes[thread].at == At::kItsWarp;
    }
  }
}

// Warp after warp runs as far as it can alone, in an order that turns at every
// barrier. So a barrier that a kernel lacks gives wrong numbers each time.
void run_block() {
  const auto warps = static_cast<unsigned>(lanes.size()) / kWarp;
  for (Lane& lane : lanes) {
    ::getcontext(&lane.context);
    lane.context.uc_stack = {.ss_sp = lane.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
    lane.context.uc_link = nullptr;
    ::makecontext(&lane.context, &run_lane, 0);
    lane.at = At::kItsWarp;
    lane.has_begun = false;
    lane.exchanges = 0;
  }
  for (bool is_first_first = true, is_waiting = true; is_waiting;
       is_first_first = !is_first_first) {
    for (unsigned i = 0; i < warps; ++i) run_warp(is_first_first ? i : warps - 1 - i);
    is_waiting = false;
    for (Lane& lane : lanes) {
      is_waiting |= lane.at == At::kItsBlock;
      if (lane.at == At::kItsBlock) lane.at = At::kItsWarp;
    }
  }
}

}  // namespace

void EmulatedCard::launch(const std::string& name, Grid grid, void* /*stream*/, void** arguments) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  body = &kernels_.at(name);
  body_arguments = arguments;
  blockDim = {grid.threads, 1};
  gridDim = {grid.columns, grid.rows};
  lanes.resize(grid.threads);
  for (unsigned y = 0; y < grid.rows; ++y) {
    for (unsigned x = 0; x < grid.columns; ++x) {
      blockIdx = {x, y};
      run_block();
    }
  }
}

}  // namespace skerry::diffusion::emulated
