// What a training step does between its matrix products on the CPU, each in one pass over memory where a composition of
// LibTorch's operators takes several. Plain loops over fp32 rows, compiled for several instruction sets; no LibTorch shows
// here. Every function handles the rows of one sample, so that no sum crosses a thread. Pointers may not overlap unless
// said. Each has its composition of LibTorch's operators beside it in fused_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skerry::diffusion::pointwise {

// A sample's tokens [rows, width], row after row.
struct Rows {
  std::size_t rows, width;
};

// out = (x − mean) / √(variance + 1e-6) · (1 + scale) + shift; shift and scale [width]. Keeps mean and 1/√… of each row
// in `moments` [rows, 2].
void modulate(Rows size, const float* x, const float* shift, const float* scale, float* out, float* moments);
// From the gradient of out, writes those of x, shift and scale.
void modulate_backward(Rows size, const float* gradient, const float* x, const float* scale,
                       const float* moments, float* for_x, float* for_shift, float* for_scale);

// out = x + y · gate; gate [width]. out may be x.
void add_gated(Rows size, const float* x, const float* y, const float* gate, float* out);
// The gradient of x is that of out.
void add_gated_backward(Rows size, const float* gradient, const float* y, const float* gate, float* for_y,
                        float* for_gate);

// GELU in the form with tanh; `count` numbers. out may be x.
void gelu(std::size_t count, const float* x, float* out);
void gelu_backward(std::size_t count, const float* gradient, const float* x, float* for_x);

// Each row becomes softmax(factor · row), in place.
void softmax(Rows size, float factor, float* scores);
// `gradient` of the probabilities becomes that of the scores, in place.
void softmax_backward(Rows size, float factor, const float* probabilities, float* gradient);

// What a tensor's roundings of one step are drawn with.
struct RoundingKey {
  std::uint32_t first, second;
};
// Of the hash of a number's place: its low half is what is drawn (lean.h).
inline constexpr std::uint32_t kRoundingFactors[] = {0x7FEB352D, 0x846CA68B};
inline constexpr std::uint16_t kQuietNan = 0x7FC0;
// Each number to the bf16 on either side of it, to the nearer the more often: the mean over all keys is the number. x[0]
// stands at `place` in its tensor.
void round_to_bf16(std::size_t count, RoundingKey key, std::uint32_t place, const float* x,
                   std::uint16_t* out);

// The tokens of one head as rows of their own, and back: `stride` floats from a token to the next in `tokens`.
void gather(Rows size, const float* tokens, std::size_t stride, float* rows);
void scatter(Rows size, const float* rows, float* tokens, std::size_t stride);

}  // namespace skerry::diffusion::pointwise
