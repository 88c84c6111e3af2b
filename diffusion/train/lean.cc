// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/lean.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "model/memory_plan.h"

namespace skerry::diffusion {
namespace {

// Few enough to stay in the CPU's caches; a card needs more to be busy.
constexpr std::int64_t kCpuSlice = 1 << 17;
constexpr std::int64_t kTogether = 1 << 14;  // on one thread
constexpr std::int64_t kLow = 0xFFFFFFFF;

// x · by modulo 2^32, of x in [0, 2^32). The factor counts as signed, so that
// no product leaves 64 bits.
void multiply(at::Tensor& x, std::uint32_t by) {
  x.mul_(std::int64_t{static_cast<std::int32_t>(by)}).bitwise_and_(kLow);
}

}  // namespace

LeanScratch::LeanScratch(torch::Device device, std::int64_t largest, bool by_operators)
    : slice(std::min(largest, device.is_cpu() ? kCpuSlice : std::int64_t{kLeanSlice})) {
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(device);
  for (at::Tensor& tensor : exact) tensor = at::empty({slice}, fp32);
  if (!by_operators) return;
  places = at::arange(slice, fp32.dtype(at::kLong));
  draws = at::empty_like(places);
  shifted = at::empty_like(places);
  strange = at::empty({slice}, fp32.dtype(at::kBool));
}

void round_at_random(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                     LeanScratch& scratch, const at::Tensor& out) {
  if (scratch.places.defined()) return round_by_operators(exact, key, place, scratch, out);
  const float* from = exact.const_data_ptr<float>();
  auto* to = static_cast<std::uint16_t*>(out.mutable_data_ptr());
  at::parallel_for(0, exact.numel(), kTogether, [&](std::int64_t begin, std::int64_t end) {
    pointwise::round_to_bf16(static_cast<std::size_t>(end - begin), key,
                             static_cast<std::uint32_t>(place + begin), from + begin, to + begin);
  });
}

void round_by_operators(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                        LeanScratch& scratch, const at::Tensor& out) {
  const auto first = [n = exact.numel()](const at::Tensor& tensor) {
    return tensor.narrow(0, 0, n);
  };
  at::Tensor x = first(scratch.draws), shifted = first(scratch.shifted),
             strange = first(scratch.strange);
  const auto fold = [&](std::int64_t bits) {
    at::bitwise_right_shift_out(shifted, x, bits);
    x.bitwise_xor_(shifted);
  };
  at::add_out(x, first(scratch.places), at::scalar_tensor((place + key.first) & kLow, at::kLong));
  x.bitwise_and_(kLow);
  fold(16);
  multiply(x, pointwise::kRoundingFactors[0]);
  fold(15);
  x.bitwise_xor_(std::int64_t{key.second});
  multiply(x, pointwise::kRoundingFactors[1]);
  fold(16);
  x.bitwise_and_(0xFFFF);
  x.add_(exact.view(at::kInt));
  at::bitwise_right_shift_out(shifted, x, 16);
  at::ne_out(strange, exact, exact);
  shifted.masked_fill_(strange, std::int64_t{pointwise::kQuietNan});
  out.view(at::kShort).copy_(shifted);
}

}  // namespace skerry::diffusion
