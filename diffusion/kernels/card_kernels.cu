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

// A thread holds groups of four columns of a row: group threadIdx.x, and group
// threadIdx.x + blockDim.x. It reads and writes a group at once, 16 bytes of
// floats, and all groups before it waits for other threads.
constexpr int kGroups = 2;

template <class P>
__device__ inline FourFloats four_at(const P* from, long long at) {
  const typename Four<P>::Type found = *reinterpret_cast<const typename Four<P>::Type*>(from + at);
  FourFloats four;
  for (int i = 0; i < 4; ++i) four.at[i] = wide(found.at[i]);
  return four;
}
template <class P>
__device__ inline void put_four(const FourFloats& four, P* to, long long at) {
  typename Four<P>::Type out;
  for (int i = 0; i < 4; ++i) narrow(four.at[i], out.at[i]);
  *reinterpret_cast<typename Four<P>::Type*>(to + at) = out;
}
__device__ inline int column_of(int group) {
  return 4 * static_cast<int>(threadIdx.x + group * blockDim.x);
}

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
  FourFloats values[kGroups] = {};
  Pair sums{0, 0};
  for (int k = 0; k < kGroups; ++k) {
    const int column = column_of(k);
    if (column >= width) continue;
    values[k] = four_at(x, row * width + column);
    if (kGated) {
      const FourFloats added = four_at(y, row * width + column);
      const FourFloats gates = four_at(gate, sample * stride + column);
      for (int i = 0; i < 4; ++i) values[k].at[i] += added.at[i] * gates.at[i];
      put_four(values[k], summed, row * width + column);
    }
    for (int i = 0; i < 4; ++i) sums.first += values[k].at[i];
  }
  const float mean = block_sum(sums).first / static_cast<float>(width);
  sums = {0, 0};
  for (int k = 0; k < kGroups; ++k) {
    for (int i = 0; i < 4; ++i) {
      const float off = values[k].at[i] - mean;
      if (column_of(k) < width) sums.first += off * off;
    }
  }
  const float factor = 1.0F / sqrtf(block_sum(sums).first / static_cast<float>(width) + 1e-6F);
  for (int k = 0; k < kGroups; ++k) {
    const int column = column_of(k);
    if (column >= width) continue;
    const FourFloats scales = four_at(scale, sample * stride + column);
    FourFloats result = four_at(shift, sample * stride + column);
    for (int i = 0; i < 4; ++i)
      result.at[i] += (values[k].at[i] - mean) * factor * (1 + scales.at[i]);
    put_four(result, out, row * width + column);
  }
  if (threadIdx.x == 0) {
    moments[2 * row] = mean;
    moments[2 * row + 1] = factor;
  }
}

// One block handles `together` rows (blockIdx.y) of one sample (blockIdx.x).
// The input of the normalisation is x. Its gradient plus `of_x`, the gradient
// from elsewhere if there is one, is for_x. The gradients of shift, scale and
// gate are sums over a sample's rows. `parts` [B, gridDim.y, kGated ? 3 : 2,
// width] has the sums of each block.
template <class P, bool kGated>
__device__ inline void modulate_backward(int tokens, int width, int together, long long stride,
                                         const P* gradient, const float* of_x, const float* x,
                                         const float* moments, const P* scale, const P* y,
                                         const P* gate, float* for_x, P* for_y, float* parts) {
  const long long sample = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * together;
  const int end = first + together < tokens ? first + together : tokens;
  FourFloats for_shift[kGroups] = {}, for_scale[kGroups] = {}, for_gate[kGroups] = {};
  for (long long row = sample * tokens + first; row < sample * tokens + end; ++row) {
    const float mean = moments[2 * row], factor = moments[2 * row + 1];
    FourFloats scaled[kGroups] = {}, normal[kGroups] = {};
    Pair sums{0, 0};
    for (int k = 0; k < kGroups; ++k) {
      const int column = column_of(k);
      if (column >= width) continue;
      const FourFloats slopes = four_at(gradient, row * width + column);
      const FourFloats scales = four_at(scale, sample * stride + column);
      normal[k] = four_at(x, row * width + column);
      for (int i = 0; i < 4; ++i) {
        normal[k].at[i] = (normal[k].at[i] - mean) * factor;
        scaled[k].at[i] = slopes.at[i] * (1 + scales.at[i]);
        for_shift[k].at[i] += slopes.at[i];
        for_scale[k].at[i] += slopes.at[i] * normal[k].at[i];
        sums.first += scaled[k].at[i];
        sums.second += scaled[k].at[i] * normal[k].at[i];
      }
    }
    sums = block_sum(sums);
    const float level = sums.first / static_cast<float>(width);
    const float tilt = sums.second / static_cast<float>(width);
    for (int k = 0; k < kGroups; ++k) {
      const int column = column_of(k);
      if (column >= width) continue;
      const long long at = row * width + column;
      FourFloats slopes{};
      if (of_x != nullptr) slopes = four_at(of_x, at);
      for (int i = 0; i < 4; ++i)
        slopes.at[i] += factor * (scaled[k].at[i] - level - normal[k].at[i] * tilt);
      put_four(slopes, for_x, at);
      if (kGated) {
        const FourFloats added = four_at(y, at);
        const FourFloats gates = four_at(gate, sample * stride + column);
        for (int i = 0; i < 4; ++i) {
          for_gate[k].at[i] += slopes.at[i] * added.at[i];
          slopes.at[i] *= gates.at[i];
        }
        put_four(slopes, for_y, at);
      }
    }
  }
  float* part = parts + (sample * gridDim.y + blockIdx.y) * (kGated ? 3 : 2) * width;
  for (int k = 0; k < kGroups; ++k) {
    const int column = column_of(k);
    if (column >= width) continue;
    put_four(for_shift[k], part, column);
    put_four(for_scale[k], part, width + column);
    if (kGated) put_four(for_gate[k], part, 2LL * width + column);
  }
}

// The sums of each sample (blockIdx.x) over its parts [B,parts,columns], in
// their order. Four columns a thread (blockIdx.y).
template <class P>
__device__ inline void sum_parts(int parts, int columns, const float* in, P* out) {
  const long long sample = blockIdx.x;
  const long long column = 4 * (static_cast<long long>(blockIdx.y) * blockDim.x + threadIdx.x);
  if (column >= columns) return;
  FourFloats sums{};
  const float* from = in + sample * parts * columns + column;
  for (int part = 0; part < parts; ++part, from += columns) {
    const FourFloats four = four_at(from, 0);
    for (int i = 0; i < 4; ++i) sums.at[i] += four.at[i];
  }
  put_four(sums, out, sample * columns + column);
}

// Four columns a thread. A column of blocks for each sample (blockIdx.x), as
// many as there may be, goes through its tokens · width / 4.
template <class P>
__device__ inline void add_gated(int tokens, int width, long long stride, const float* x,
                                 const P* y, const P* gate, float* out) {
  const long long sample = blockIdx.x, quarter = width / 4;
  const long long together = static_cast<long long>(gridDim.y) * blockDim.x;
  long long index = static_cast<long long>(blockIdx.y) * blockDim.x + threadIdx.x;
  for (; index < tokens * quarter; index += together) {
    const long long at = 4 * (sample * tokens * quarter + index);
    const FourFloats gates = four_at(gate, sample * stride + index % quarter * 4);
    const FourFloats added = four_at(y, at);
    FourFloats sum = four_at(x, at);
    for (int i = 0; i < 4; ++i) sum.at[i] += added.at[i] * gates.at[i];
    put_four(sum, out, at);
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
  for (int k = 0; k < kGroups; ++k) {
    const int column = column_of(k);
    if (column >= width) continue;
    const FourFloats gates = four_at(gate, sample * stride + column);
    FourFloats for_gate{};
    for (long long row = sample * tokens + first; row < sample * tokens + end; ++row) {
      FourFloats slopes = four_at(gradient, row * width + column);
      const FourFloats added = four_at(y, row * width + column);
      for (int i = 0; i < 4; ++i) {
        for_gate.at[i] += slopes.at[i] * added.at[i];
        slopes.at[i] *= gates.at[i];
      }
      put_four(slopes, for_y, row * width + column);
    }
    put_four(for_gate, parts, (sample * gridDim.y + blockIdx.y) * width + column);
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
  SKERRY_KERNEL modulate_backward_##P(                                                             \
      int tokens, int width, int together, long long stride, const P* gradient, const float* of_x, \
      const float* x, const float* moments, const P* scale, float* for_x, float* parts) {          \
    modulate_backward<P, false>(tokens, width, together, stride, gradient, of_x, x, moments,       \
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
  SKERRY_KERNEL sum_parts_##P(int parts, int columns, const float* in, P* out) {                   \
    sum_parts<P>(parts, columns, in, out);                                                         \
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
