// SPDX-License-Identifier: Apache-2.0
// The work of a training step between its matrix products on a card, each part
// in one pass over memory. NVRTC compiles this file for the engine's card at
// start: see card.cc. The test in card_test.cc compiles it as C++ and runs it
// thread by thread, so it includes nothing. No sum here has an order that may
// vary: equal inputs give equal bits. The header kernels.h describes each
// function. Its composition of LibTorch's operators is in card_test.cc.
//
// blockIdx.x counts samples, or rows of all of them: CUDA bounds it at 2³¹ − 1,
// and blockIdx.y at 65,535. Hidden states are fp32. P is the type of inputs and
// results of products: bf16 under autocast, else float.

struct bf16 {
  unsigned short bits;
};
struct alignas(16) FourFloats {
  float at[4];
};
struct alignas(8) FourBf16 {
  bf16 at[4];
};
template <class P>
struct Four;
template <>
struct Four<float> {
  using Type = FourFloats;
};
template <>
struct Four<bf16> {
  using Type = FourBf16;
};

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline void narrow(float x, float& out) { out = x; }
// To the nearest, of two as near to the even one, as LibTorch rounds.
__device__ inline void narrow(float x, bf16& out) {
  const unsigned bits = __float_as_uint(x);
  out.bits =
      static_cast<unsigned short>(x != x ? 0x7FC0U : (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

// A thread holds the columns threadIdx.x, threadIdx.x + blockDim.x, … of a row.
constexpr int kColumns = 8;

struct Pair {
  float first, second;
};

// The sums over the block's threads, in each of them.
__device__ inline Pair block_sum(Pair x) {
  __shared__ Pair of_warps[32];
  for (int distance = 16; distance > 0; distance /= 2) {
    x.first += __shfl_xor_sync(0xFFFFFFFFU, x.first, distance);
    x.second += __shfl_xor_sync(0xFFFFFFFFU, x.second, distance);
  }
  // other threads may still read the sums of the call before
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  Pair sum{0, 0};
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
    sum.first += of_warps[warp].first;
    sum.second += of_warps[warp].second;
  }
  return sum;
}

// A block for each row of [B,T,width]. `stride`: from a sample's shift, scale
// and gate to the next's. kGated: x + y · gate goes to `summed` and is what is
// normalised.
template <class P, bool kGated>
__device__ inline void modulate(int tokens, int width, long long stride, const float* x, const P* y,
                                const P* gate, const P* shift, const P* scale, float* summed,
                                P* out, float* moments) {
  const long long row = blockIdx.x, sample = row / tokens;
  float values[kColumns];
  Pair sums{0, 0};
  for (int k = 0; k < kColumns; ++k) {
    const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
    values[k] = 0;
    if (column >= width) continue;
    values[k] = x[row * width + column];
    if (kGated) {
      values[k] += wide(y[row * width + column]) * wide(gate[sample * stride + column]);
      summed[row * width + column] = values[k];
    }
    sums.first += values[k];
  }
  const float mean = block_sum(sums).first / static_cast<float>(width);
  sums = {0, 0};
  for (int k = 0; k < kColumns; ++k) {
    const float off = values[k] - mean;
    if (static_cast<int>(threadIdx.x + k * blockDim.x) < width) sums.first += off * off;
  }
  const float factor = 1.0F / sqrtf(block_sum(sums).first / static_cast<float>(width) + 1e-6F);
  for (int k = 0; k < kColumns; ++k) {
    const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
    if (column >= width) continue;
    const long long at = sample * stride + column;
    narrow((values[k] - mean) * factor * (1 + wide(scale[at])) + wide(shift[at]),
           out[row * width + column]);
  }
  if (threadIdx.x == 0) {
    moments[2 * row] = mean;
    moments[2 * row + 1] = factor;
  }
}

// One block handles `together` rows (blockIdx.y) of one sample (blockIdx.x).
// The input of the normalisation is x. Its gradient plus `of_summed`, the
// gradient from elsewhere, is for_x. The gradients of shift, scale and gate are
// sums over a sample's rows. `parts` [B, gridDim.y, kGated ? 3 : 2, width] has
// the sums of each block.
template <class P, bool kGated>
__device__ inline void modulate_backward(int tokens, int width, int together, long long stride,
                                         const P* gradient, const float* of_summed, const float* x,
                                         const float* moments, const P* scale, const P* y,
                                         const P* gate, float* for_x, P* for_y, float* parts) {
  const long long sample = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * together;
  const int end = first + together < tokens ? first + together : tokens;
  float for_shift[kColumns] = {}, for_scale[kColumns] = {}, for_gate[kColumns] = {};
  for (long long row = sample * tokens + first; row < sample * tokens + end; ++row) {
    const float mean = moments[2 * row], factor = moments[2 * row + 1];
    float scaled[kColumns], normal[kColumns];
    Pair sums{0, 0};
    for (int k = 0; k < kColumns; ++k) {
      const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
      scaled[k] = normal[k] = 0;
      if (column >= width) continue;
      const float slope = wide(gradient[row * width + column]);
      normal[k] = (x[row * width + column] - mean) * factor;
      scaled[k] = slope * (1 + wide(scale[sample * stride + column]));
      for_shift[k] += slope;
      for_scale[k] += slope * normal[k];
      sums.first += scaled[k];
      sums.second += scaled[k] * normal[k];
    }
    sums = block_sum(sums);
    const float level = sums.first / static_cast<float>(width);
    const float tilt = sums.second / static_cast<float>(width);
    for (int k = 0; k < kColumns; ++k) {
      const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (column >= width) continue;
      const long long at = row * width + column;
      float slope = factor * (scaled[k] - level - normal[k] * tilt);
      if (kGated) {
        slope += of_summed[at];
        for_gate[k] += slope * wide(y[at]);
        narrow(slope * wide(gate[sample * stride + column]), for_y[at]);
      }
      for_x[at] = slope;
    }
  }
  float* part = parts + (sample * gridDim.y + blockIdx.y) * (kGated ? 3 : 2) * width;
  for (int k = 0; k < kColumns; ++k) {
    const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
    if (column >= width) continue;
    part[column] = for_shift[k];
    part[width + column] = for_scale[k];
    if (kGated) part[2 * width + column] = for_gate[k];
  }
}

// Four columns a thread. A column of blocks for each sample (blockIdx.x), as
// many as there may be, goes through its tokens · width / 4.
template <class P>
__device__ inline void add_gated(int tokens, int width, long long stride, const float* x,
                                 const P* y, const P* gate, float* out) {
  using Fours = typename Four<P>::Type;
  const long long sample = blockIdx.x, quarter = width / 4;
  const long long together = static_cast<long long>(gridDim.y) * blockDim.x;
  long long index = static_cast<long long>(blockIdx.y) * blockDim.x + threadIdx.x;
  for (; index < tokens * quarter; index += together) {
    const long long at = sample * tokens * quarter + index;
    const P* gates = gate + sample * stride + index % quarter * 4;
    const Fours part = reinterpret_cast<const Fours*>(y)[at];
    FourFloats sum = reinterpret_cast<const FourFloats*>(x)[at];
    for (int i = 0; i < 4; ++i) sum.at[i] += wide(part.at[i]) * wide(gates[i]);
    reinterpret_cast<FourFloats*>(out)[at] = sum;
  }
}

// Blocks as in modulate_backward; `parts` [B, gridDim.y, width] has the sums
// for gate.
template <class P>
__device__ inline void add_gated_backward(int tokens, int width, int together, long long stride,
                                          const float* gradient, const P* y, const P* gate,
                                          P* for_y, float* parts) {
  const long long sample = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * together;
  const int end = first + together < tokens ? first + together : tokens;
  float for_gate[kColumns] = {};
  for (long long row = sample * tokens + first; row < sample * tokens + end; ++row) {
    for (int k = 0; k < kColumns; ++k) {
      const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
      if (column >= width) continue;
      const long long at = row * width + column;
      for_gate[k] += gradient[at] * wide(y[at]);
      narrow(gradient[at] * wide(gate[sample * stride + column]), for_y[at]);
    }
  }
  float* part = parts + (sample * gridDim.y + blockIdx.y) * width;
  for (int k = 0; k < kColumns; ++k) {
    const int column = static_cast<int>(threadIdx.x + k * blockDim.x);
    if (column < width) part[column] = for_gate[k];
  }
}

constexpr float kGeluRoot = 0.7978845608F;  // √(2/π)
constexpr float kGeluCube = 0.044715F;

__device__ inline float gelu(float x) {
  return 0.5F * x * (1 + tanhf(kGeluRoot * (x + kGeluCube * x * x * x)));
}
__device__ inline float gelu_slope(float x) {
  const float t = tanhf(kGeluRoot * (x + kGeluCube * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kGeluRoot * (1 + 3 * kGeluCube * x * x);
}

// Four columns a thread (blockIdx.y), `together` rows a block (blockIdx.x).
template <class P>
__device__ inline void bias_gelu(long long rows, int width, int together, const P* x,
                                 const float* bias, P* out) {
  using Fours = typename Four<P>::Type;
  const long long quarter = width / 4;
  const long long column = static_cast<long long>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (column >= quarter) return;
  const FourFloats biases = reinterpret_cast<const FourFloats*>(bias)[column];
  const long long first = static_cast<long long>(blockIdx.x) * together;
  const long long end = first + together < rows ? first + together : rows;
  for (long long row = first; row < end; ++row) {
    Fours four = reinterpret_cast<const Fours*>(x)[row * quarter + column];
    for (int i = 0; i < 4; ++i) narrow(gelu(wide(four.at[i]) + biases.at[i]), four.at[i]);
    reinterpret_cast<Fours*>(out)[row * quarter + column] = four;
  }
}

// The same blocks; `parts` [gridDim.x, width] has the sums for bias.
template <class P>
__device__ inline void bias_gelu_backward(long long rows, int width, int together,
                                          const P* gradient, const P* x, const float* bias,
                                          P* for_x, float* parts) {
  using Fours = typename Four<P>::Type;
  const long long quarter = width / 4;
  const long long column = static_cast<long long>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (column >= quarter) return;
  const FourFloats biases = reinterpret_cast<const FourFloats*>(bias)[column];
  FourFloats sums{};
  const long long first = static_cast<long long>(blockIdx.x) * together;
  const long long end = first + together < rows ? first + together : rows;
  for (long long row = first; row < end; ++row) {
    const Fours slopes = reinterpret_cast<const Fours*>(gradient)[row * quarter + column];
    Fours four = reinterpret_cast<const Fours*>(x)[row * quarter + column];
    for (int i = 0; i < 4; ++i) {
      const float slope = wide(slopes.at[i]) * gelu_slope(wide(four.at[i]) + biases.at[i]);
      sums.at[i] += slope;
      narrow(slope, four.at[i]);
    }
    reinterpret_cast<Fours*>(for_x)[row * quarter + column] = four;
  }
  reinterpret_cast<FourFloats*>(parts)[blockIdx.x * quarter + column] = sums;
}

// A block of as many threads as hold the widest row has the registers that it
// needs.
#define SKERRY_KERNEL extern "C" __global__ void __launch_bounds__(512)

// What is launched, by name.
#define SKERRY_KERNELS(P)                                                                          \
  SKERRY_KERNEL modulate_##P(int tokens, int width, long long stride, const float* x,              \
                             const P* shift, const P* scale, P* out, float* moments) {             \
    modulate<P, false>(tokens, width, stride, x, nullptr, nullptr, shift, scale, nullptr, out,     \
                       moments);                                                                   \
  }                                                                                                \
  SKERRY_KERNEL modulate_backward_##P(int tokens, int width, int together, long long stride,       \
                                      const P* gradient, const float* x, const float* moments,     \
                                      const P* scale, float* for_x, float* parts) {                \
    modulate_backward<P, false>(tokens, width, together, stride, gradient, nullptr, x, moments,    \
                                scale, nullptr, nullptr, for_x, nullptr, parts);                   \
  }                                                                                                \
  SKERRY_KERNEL gated_modulate_##P(int tokens, int width, long long stride, const float* x,        \
                                   const P* y, const P* gate, const P* shift, const P* scale,      \
                                   float* summed, P* out, float* moments) {                        \
    modulate<P, true>(tokens, width, stride, x, y, gate, shift, scale, summed, out, moments);      \
  }                                                                                                \
  SKERRY_KERNEL gated_modulate_backward_##P(                                                       \
      int tokens, int width, int together, long long stride, const P* gradient,                    \
      const float* of_summed, const float* x, const float* moments, const P* scale, const P* y,    \
      const P* gate, float* for_x, P* for_y, float* parts) {                                       \
    modulate_backward<P, true>(tokens, width, together, stride, gradient, of_summed, x, moments,   \
                               scale, y, gate, for_x, for_y, parts);                               \
  }                                                                                                \
  SKERRY_KERNEL add_gated_##P(int tokens, int width, long long stride, const float* x, const P* y, \
                              const P* gate, float* out) {                                         \
    add_gated<P>(tokens, width, stride, x, y, gate, out);                                          \
  }                                                                                                \
  SKERRY_KERNEL add_gated_backward_##P(int tokens, int width, int together, long long stride,      \
                                       const float* gradient, const P* y, const P* gate, P* for_y, \
                                       float* parts) {                                             \
    add_gated_backward<P>(tokens, width, together, stride, gradient, y, gate, for_y, parts);       \
  }                                                                                                \
  SKERRY_KERNEL bias_gelu_##P(long long rows, int width, int together, const P* x,                 \
                              const float* bias, P* out) {                                         \
    bias_gelu<P>(rows, width, together, x, bias, out);                                             \
  }                                                                                                \
  SKERRY_KERNEL bias_gelu_backward_##P(long long rows, int width, int together, const P* gradient, \
                                       const P* x, const float* bias, P* for_x, float* parts) {    \
    bias_gelu_backward<P>(rows, width, together, gradient, x, bias, for_x, parts);                 \
  }

SKERRY_KERNELS(float)
SKERRY_KERNELS(bf16)
