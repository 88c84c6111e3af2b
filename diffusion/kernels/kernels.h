// SPDX-License-Identifier: Apache-2.0
// How a Dit computes the parts of a block: one interface, three
// implementations, and one suite that all of them pass (kernels_test.cc).
//
// Hidden states are fp32. What comes from a matrix product and goes into one
// has the product's type: bf16 under autocast, else fp32. All implementations
// agree up to rounding. Each gives the same bits for the same input, whatever
// the number of threads. Gradients flow through every function. Includes
// LibTorch: for this folder only.
//
// THREADS: any number at once. Functions run on the device of their tensors and
// queue on LibTorch's current stream there.
// ON FAILURE: c10::Error.
#pragma once

#include <torch/torch.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "diffusion/kernels/card.h"
#include "diffusion/model/spec.h"

namespace skerry::diffusion {

class Kernels {
 public:
  virtual ~Kernels() = default;

  // What a fingerprint says of them, as they decide over bits: "fast 2 by
  // compute_90 by driver 13.0". Empty: the reference.
  virtual std::string fingerprint() const = 0;

  // input [..., in] · weight [out, in]ᵀ + bias [out].
  virtual at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias) const = 0;

  // GELU, in the form with tanh, of linear(input, weight, bias).
  virtual at::Tensor linear_gelu(const at::Tensor& input, const at::Tensor& weight,
                                 const at::Tensor& bias) const = 0;

  // LayerNorm without weights, then · (1 + scale) + shift. x [B,T,W]; shift and
  // scale [B,1,W].
  // RETURNS: [B,T,W] in the type of shift.
  virtual at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift,
                              const at::Tensor& scale) const = 0;

  // x + y · gate. x and y [B,T,W]; gate [B,1,W].
  // RETURNS: [B,T,W] fp32.
  virtual at::Tensor add_gated(const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& gate) const = 0;

  // RETURNS: the gated sum, and it modulated.
  virtual std::pair<at::Tensor, at::Tensor> add_gated_and_modulate(const at::Tensor& x,
                                                                   const at::Tensor& y,
                                                                   const at::Tensor& gate,
                                                                   const at::Tensor& shift,
                                                                   const at::Tensor& scale) const;

  // Query, key and value: weights [W,I] and biases [W] of three linear layers.
  struct Projections {
    std::array<at::Tensor, 3> weights, biases;
  };
  // Softmax attention of `heads` heads within each sample. input [B,T,I].
  // RETURNS: [B,T,W], before the projection out.
  virtual at::Tensor attention(const at::Tensor& input, const Projections& projections,
                               std::int64_t heads) const = 0;
};

// Compositions of LibTorch's operators, on any device.
std::shared_ptr<const Kernels> reference_kernels();
// One node of the autograd graph where the reference has many, over the loops
// of pointwise.h. For the CPU.
std::shared_ptr<const Kernels> cpu_kernels();
// The same over card_kernels.cu. The device of the tensors is that of `card`.
// REQUIRES: card_kernels_serve(model).
std::shared_ptr<const Kernels> cuda_kernels(std::shared_ptr<Card> card);

// Whether the kernels of a card take rows of this model's width: a thread holds
// eight numbers, and a block has 512 threads with the registers for that.
inline bool card_kernels_serve(const ModelSpec& model) { return model.width <= 4096; }

// What `choice` means for this model on this device. On a card it compiles the
// kernels and checks them, which takes about a second. Where they do not
// compile or compute wrongly it logs a warning.
// RETURNS: the reference where there are no fast kernels.
std::shared_ptr<const Kernels> make_kernels(KernelChoice choice, torch::Device device,
                                            const ModelSpec& model);

// Whether the functions between matrix products compute on `device` what the
// reference does, forward and backward, if products are of each of these types.
// `width`: a multiple of 4.
// ON FAILURE: kCorrupt names the first function that does not; errors of the
// card as error_of (device.h).
Result<void> check_against_reference(const Kernels& kernels, torch::Device device,
                                     std::int64_t width,
                                     const std::vector<at::ScalarType>& types = {at::kFloat,
                                                                                 at::kBFloat16});

}  // namespace skerry::diffusion
