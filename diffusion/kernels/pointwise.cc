// SPDX-License-Identifier: Apache-2.0
#include "diffusion/kernels/pointwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

// Compiled once for each of these; the loader takes the best that the processor
// has.
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_CPU
#endif
// Before a loop over lanes that chooses: GCC 12 takes them at once only where
// it does not unroll them first.
#if defined(__GNUC__) && !defined(__clang__)
#define LANES_AT_ONCE _Pragma("GCC unroll 1")
#else
#define LANES_AT_ONCE
#endif
// Inlined, so that it becomes part of each.
#define INLINE __attribute__((always_inline)) inline

namespace skerry::diffusion::pointwise {
namespace {

constexpr std::size_t kLanes = 16;
constexpr float kNormEpsilon = 1e-6F;
// GELU's tanh form: √(2/π) · (x + 0.044715 x³), doubled, because (1 + tanh u) /
// 2 = 1 / (1 + e^−2u).
constexpr float kGeluFactor = 2 * 0.7978845608028654F;
constexpr float kGeluCube = 0.044715F;

// Sums of sixteen lanes: a compiler may not reorder the sum of one.
struct Sum {
  float lanes[kLanes] = {};
  INLINE float total() const {
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    return sum;
  }
};

// term(i) for every i below count, summed.
template <class Term>
INLINE float sum_of(std::size_t count, const Term& term) {
  Sum sum;
  const std::size_t whole = count - count % kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum.lanes[lane] += term(i + lane);
  }
  for (std::size_t i = whole; i < count; ++i) sum.lanes[i - whole] += term(i);
  return sum.total();
}

// e^x to two units in the last place for x in [−87, 88], clamped outside: 2^n ·
// e^r with |r| ≤ ln 2 / 2. No table and no branch, so that a compiler takes
// many at once.
INLINE float exponential(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  constexpr float kRound =
      12582912.0F;  // 1.5 · 2^23: adding it leaves a whole number in the low bits
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float power = 1.9875691500e-4F * r + 1.3981999507e-3F;
  power = power * r + 8.3334519073e-3F;
  power = power * r + 4.1665795894e-2F;
  power = power * r + 1.6666665459e-1F;
  power = power * r + 5.0000001201e-1F;
  power = power * r * r + r + 1.0F;
  return power * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23U);
}

INLINE float sigmoid_of_gelu(float x) {
  return 1.0F / (1.0F + exponential(-kGeluFactor * (x + kGeluCube * x * x * x)));
}

INLINE float wide(float x) { return x; }
INLINE float wide(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
INLINE void narrow(float x, float& out) { out = x; }
// Of two as near to the even one.
INLINE void narrow(float x, Bf16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool strange = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  out.bits = static_cast<std::uint16_t>(strange ? kQuietNan : rounded);
}

// P: float or Bf16.

template <class P>
INLINE void modulate_as(Rows size, const float* x, const float* shift, const float* scale, P* out,
                        float* moments) {
  const auto width = static_cast<float>(size.width);
  for (std::size_t row = 0; row < size.rows;
       ++row, x += size.width, out += size.width, moments += 2) {
    const float* __restrict in = x;
    P* __restrict to = out;
    const float mean = sum_of(size.width, [&](std::size_t i) { return in[i]; }) / width;
    const float variance =
        sum_of(size.width, [&](std::size_t i) { return (in[i] - mean) * (in[i] - mean); }) / width;
    const float inverse = 1.0F / std::sqrt(variance + kNormEpsilon);
    for (std::size_t i = 0; i < size.width; ++i) {
      narrow((in[i] - mean) * inverse * (1.0F + scale[i]) + shift[i], to[i]);
    }
    moments[0] = mean;
    moments[1] = inverse;
  }
}

template <class P>
INLINE void modulate_backward_as(Rows size, const P* gradient, const float* x, const float* scale,
                                 const float* moments, float* for_x, float* for_shift,
                                 float* for_scale) {
  const auto width = static_cast<float>(size.width);
  std::fill_n(for_shift, size.width, 0.0F);
  std::fill_n(for_scale, size.width, 0.0F);
  for (std::size_t row = 0; row < size.rows; ++row, moments += 2) {
    const P* __restrict g = gradient + row * size.width;
    const float* __restrict in = x + row * size.width;
    float* __restrict to = for_x + row * size.width;
    float* __restrict shift_sum = for_shift;
    float* __restrict scale_sum = for_scale;
    const float mean = moments[0], inverse = moments[1];
    for (std::size_t i = 0; i < size.width; ++i) {
      const float normal = (in[i] - mean) * inverse, slope = wide(g[i]);
      shift_sum[i] += slope;
      scale_sum[i] += slope * normal;
      to[i] = slope * (1.0F + scale[i]);
    }
    const float even = sum_of(size.width, [&](std::size_t i) { return to[i]; }) / width;
    const float along =
        sum_of(size.width, [&](std::size_t i) { return to[i] * ((in[i] - mean) * inverse); }) /
        width;
    for (std::size_t i = 0; i < size.width; ++i) {
      to[i] = inverse * (to[i] - even - (in[i] - mean) * inverse * along);
    }
  }
}

template <class P>
INLINE void add_gated_as(Rows size, const float* x, const P* y, const float* gate, float* out) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    const float* in = x + row * size.width;
    const P* __restrict part = y + row * size.width;
    float* to = out + row * size.width;
    for (std::size_t i = 0; i < size.width; ++i) to[i] = in[i] + wide(part[i]) * gate[i];
  }
}

template <class P>
INLINE void add_gated_backward_as(Rows size, const float* gradient, const P* y, const float* gate,
                                  P* for_y, float* for_gate) {
  std::fill_n(for_gate, size.width, 0.0F);
  for (std::size_t row = 0; row < size.rows; ++row) {
    const float* __restrict g = gradient + row * size.width;
    const P* __restrict part = y + row * size.width;
    P* __restrict to = for_y + row * size.width;
    float* __restrict sum = for_gate;
    for (std::size_t i = 0; i < size.width; ++i) {
      narrow(g[i] * gate[i], to[i]);
      sum[i] += g[i] * wide(part[i]);
    }
  }
}

template <class P>
INLINE void gelu_as(std::size_t count, const P* x, P* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const float in = wide(x[i]);
    narrow(in * sigmoid_of_gelu(in), out[i]);
  }
}

template <class P>
INLINE void gelu_backward_as(std::size_t count, const P* __restrict gradient, const P* __restrict x,
                             P* __restrict for_x) {
  for (std::size_t i = 0; i < count; ++i) {
    const float in = wide(x[i]);
    const float s = sigmoid_of_gelu(in);
    const float slope = kGeluFactor * (1.0F + 3.0F * kGeluCube * in * in);
    narrow(wide(gradient[i]) * (s + in * s * (1.0F - s) * slope), for_x[i]);
  }
}

template <class P>
INLINE void softmax_as(Rows size, float factor, P* scores, float* __restrict room) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    P* __restrict at = scores + row * size.width;
    float largest[kLanes];
    std::fill_n(largest, kLanes, wide(at[0]));
    const std::size_t whole = size.width - size.width % kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
      LANES_AT_ONCE
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float score = wide(at[i + lane]);
        largest[lane] = score > largest[lane] ? score : largest[lane];
      }
    }
    for (std::size_t i = whole; i < size.width; ++i) largest[0] = std::max(largest[0], wide(at[i]));
    const float most = *std::max_element(largest, largest + kLanes);
    for (std::size_t i = 0; i < size.width; ++i)
      room[i] = exponential(factor * (wide(at[i]) - most));
    const float inverse = 1.0F / sum_of(size.width, [&](std::size_t i) { return room[i]; });
    for (std::size_t i = 0; i < size.width; ++i) narrow(room[i] * inverse, at[i]);
  }
}

template <class P>
INLINE void softmax_backward_as(Rows size, float factor, const P* probabilities, P* gradient) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    const P* __restrict p = probabilities + row * size.width;
    P* __restrict g = gradient + row * size.width;
    const float mean = sum_of(size.width, [&](std::size_t i) { return wide(p[i]) * wide(g[i]); });
    for (std::size_t i = 0; i < size.width; ++i)
      narrow(factor * wide(p[i]) * (wide(g[i]) - mean), g[i]);
  }
}

template <class P>
void gather_as(Rows size, const P* tokens, std::size_t stride, P* rows) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    std::memcpy(rows + row * size.width, tokens + row * stride, size.width * sizeof(P));
  }
}

template <class P>
void scatter_as(Rows size, const P* rows, P* tokens, std::size_t stride) {
  for (std::size_t row = 0; row < size.rows; ++row) {
    std::memcpy(tokens + row * stride, rows + row * size.width, size.width * sizeof(P));
  }
}

}  // namespace

EVERY_CPU void modulate(Rows size, const float* x, const float* shift, const float* scale,
                        float* out, float* moments) {
  modulate_as(size, x, shift, scale, out, moments);
}
EVERY_CPU void modulate(Rows size, const float* x, const float* shift, const float* scale,
                        Bf16* out, float* moments) {
  modulate_as(size, x, shift, scale, out, moments);
}
EVERY_CPU void modulate_backward(Rows size, const float* gradient, const float* x,
                                 const float* scale, const float* moments, float* for_x,
                                 float* for_shift, float* for_scale) {
  modulate_backward_as(size, gradient, x, scale, moments, for_x, for_shift, for_scale);
}
EVERY_CPU void modulate_backward(Rows size, const Bf16* gradient, const float* x,
                                 const float* scale, const float* moments, float* for_x,
                                 float* for_shift, float* for_scale) {
  modulate_backward_as(size, gradient, x, scale, moments, for_x, for_shift, for_scale);
}
EVERY_CPU void add_gated(Rows size, const float* x, const float* y, const float* gate, float* out) {
  add_gated_as(size, x, y, gate, out);
}
EVERY_CPU void add_gated(Rows size, const float* x, const Bf16* y, const float* gate, float* out) {
  add_gated_as(size, x, y, gate, out);
}
EVERY_CPU void add_gated_backward(Rows size, const float* gradient, const float* y,
                                  const float* gate, float* for_y, float* for_gate) {
  add_gated_backward_as(size, gradient, y, gate, for_y, for_gate);
}
EVERY_CPU void add_gated_backward(Rows size, const float* gradient, const Bf16* y,
                                  const float* gate, Bf16* for_y, float* for_gate) {
  add_gated_backward_as(size, gradient, y, gate, for_y, for_gate);
}
EVERY_CPU void gelu(std::size_t count, const float* x, float* out) { gelu_as(count, x, out); }
EVERY_CPU void gelu(std::size_t count, const Bf16* x, Bf16* out) { gelu_as(count, x, out); }
EVERY_CPU void gelu_backward(std::size_t count, const float* gradient, const float* x,
                             float* for_x) {
  gelu_backward_as(count, gradient, x, for_x);
}
EVERY_CPU void gelu_backward(std::size_t count, const Bf16* gradient, const Bf16* x, Bf16* for_x) {
  gelu_backward_as(count, gradient, x, for_x);
}
EVERY_CPU void softmax(Rows size, float factor, float* scores, float* room) {
  softmax_as(size, factor, scores, room);
}
EVERY_CPU void softmax(Rows size, float factor, Bf16* scores, float* room) {
  softmax_as(size, factor, scores, room);
}
EVERY_CPU void softmax_backward(Rows size, float factor, const float* probabilities,
                                float* gradient) {
  softmax_backward_as(size, factor, probabilities, gradient);
}
EVERY_CPU void softmax_backward(Rows size, float factor, const Bf16* probabilities,
                                Bf16* gradient) {
  softmax_backward_as(size, factor, probabilities, gradient);
}

// Adding up to 0xFFFF carries into the upper half as often as the lower half is
// large. Two rounds of multiply and fold ("lowbias32" of C. Wellons's hash
// prospector) with the key at both ends.
EVERY_CPU void round_to_bf16(std::size_t count, RoundingKey key, std::uint32_t place,
                             const float* __restrict x, std::uint16_t* __restrict out) {
  const std::uint32_t first = place + key.first;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t drawn = first + static_cast<std::uint32_t>(i);
    drawn = (drawn ^ (drawn >> 16)) * kRoundingFactors[0];
    drawn = (drawn ^ (drawn >> 15) ^ key.second) * kRoundingFactors[1];
    drawn = (drawn ^ (drawn >> 16)) & 0xFFFFU;
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    const std::uint32_t rounded = (bits + drawn) >> 16;
    const bool strange = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    out[i] = static_cast<std::uint16_t>(strange ? kQuietNan : rounded);
  }
}

void gather(Rows size, const float* tokens, std::size_t stride, float* rows) {
  gather_as(size, tokens, stride, rows);
}
void gather(Rows size, const Bf16* tokens, std::size_t stride, Bf16* rows) {
  gather_as(size, tokens, stride, rows);
}
void scatter(Rows size, const float* rows, float* tokens, std::size_t stride) {
  scatter_as(size, rows, tokens, stride);
}
void scatter(Rows size, const Bf16* rows, Bf16* tokens, std::size_t stride) {
  scatter_as(size, rows, tokens, stride);
}

}  // namespace skerry::diffusion::pointwise
