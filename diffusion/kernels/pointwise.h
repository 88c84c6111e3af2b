// SPDX-License-Identifier: Apache-2.0
// The work of a training step between its matrix products on the CPU. Each
// function makes one pass over memory, where a composition of LibTorch's
// operators makes several. Plain loops over rows, compiled for several
// instruction sets. Does not include LibTorch.
//
// Every function handles the rows of one sample, so no sum crosses a thread.
// Pointers may not overlap unless stated. kernels_test.cc compares each with
// its composition of LibTorch's operators.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skerry::diffusion::pointwise {

// A sample's tokens [rows, width], row after row.
struct Rows {
  std::size_t rows, width;
};

// bf16 in the form of LibTorch's tensors.
struct Bf16 {
  std::uint16_t bits;
};

// Inputs and results of matrix products are fp32 or bf16. A function widens
// bf16 when it reads it and rounds to the nearest when it writes it; sums are
// fp32.

// out = (x − mean) / √(variance + 1e-6) · (1 + scale) + shift; shift and scale
// [width]. Keeps mean and 1/√… of each row in `moments` [rows, 2].
void modulate(Rows size, const float* x, const float* shift, const float* scale, float* out,
              float* moments);
void modulate(Rows size, const float* x, const float* shift, const float* scale, Bf16* out,
              float* moments);
// From the gradient of out, writes those of x, shift and scale.
void modulate_backward(Rows size, const float* gradient, const float* x, const float* scale,
                       const float* moments, float* for_x, float* for_shift, float* for_scale);
void modulate_backward(Rows size, const Bf16* gradient, const float* x, const float* scale,
                       const float* moments, float* for_x, float* for_shift, float* for_scale);

// out = x + y · gate; gate [width]. out may be x.
void add_gated(Rows size, const float* x, const float* y, const float* gate, float* out);
void add_gated(Rows size, const float* x, const Bf16* y, const float* gate, float* out);
// The gradient of x is that of out.
void add_gated_backward(Rows size, const float* gradient, const float* y, const float* gate,
                        float* for_y, float* for_gate);
void add_gated_backward(Rows size, const float* gradient, const Bf16* y, const float* gate,
                        Bf16* for_y, float* for_gate);

// GELU in the form with tanh; `count` numbers. out may be x.
void gelu(std::size_t count, const float* x, float* out);
void gelu(std::size_t count, const Bf16* x, Bf16* out);
void gelu_backward(std::size_t count, const float* gradient, const float* x, float* for_x);
void gelu_backward(std::size_t count, const Bf16* gradient, const Bf16* x, Bf16* for_x);

// Replaces each row by softmax(factor · row). Overwrites `room` [width].
void softmax(Rows size, float factor, float* scores, float* room);
void softmax(Rows size, float factor, Bf16* scores, float* room);
// Replaces `gradient`, that of the probabilities, by that of the scores.
void softmax_backward(Rows size, float factor, const float* probabilities, float* gradient);
void softmax_backward(Rows size, float factor, const Bf16* probabilities, Bf16* gradient);

// The key of a tensor's random roundings in one step.
struct RoundingKey {
  std::uint32_t first, second;
};
// The factors of the hash of a number's place. The hash's low half is the
// random draw (lean.h).
inline constexpr std::uint32_t kRoundingFactors[] = {0x7FEB352D, 0x846CA68B};
inline constexpr std::uint16_t kQuietNan = 0x7FC0;
// Rounds each number at random to one of the two bf16 around it, more often to
// the nearer. The mean over all keys is the number itself. x[0] stands at
// `place` in its tensor.
void round_to_bf16(std::size_t count, RoundingKey key, std::uint32_t place, const float* x,
                   std::uint16_t* out);

// Copy the tokens of one head to rows of their own, and back. `tokens` has
// `stride` numbers from a token to the next.
void gather(Rows size, const float* tokens, std::size_t stride, float* rows);
void gather(Rows size, const Bf16* tokens, std::size_t stride, Bf16* rows);
void scatter(Rows size, const float* rows, float* tokens, std::size_t stride);
void scatter(Rows size, const Bf16* rows, Bf16* tokens, std::size_t stride);

}  // namespace skerry::diffusion::pointwise
