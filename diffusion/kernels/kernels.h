// SPDX-License-Identifier: Apache-2.0
// Computes the parts of a model's block: one interface, three implementations,
// and one suite that all of them pass (kernels_test.cc).
//
// Hidden states are fp32. Inputs and results of a matrix product have the
// product's type: bf16 under autocast, else fp32. All implementations agree up
// to rounding. Each gives the same bits for the same input with any number of
// threads. Gradients flow through every function. Includes LibTorch: for this
// folder only.
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
#include "model/shapes.h"

namespace skerry::diffusion {

class Kernels {
 public:
  virtual ~Kernels() = default;

  // RETURNS: the kernels' part of a fingerprint, since they decide about bits:
  // "fast 3 by compute_90 by driver 13.0". Empty: the reference.
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

  // RETURNS: x, and it modulated. An implementation may add the gradients of
  // both in one pass.
  virtual std::pair<at::Tensor, at::Tensor> keep_and_modulate(const at::Tensor& x,
                                                              const at::Tensor& shift,
                                                              const at::Tensor& scale) const;

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

  // The same from input [B,T,W] to the tokens of context [B,N,W]: its query is
  // of the input. `bias` [B,1,N] fp32 is added to every score.
  virtual at::Tensor cross_attention(const at::Tensor& input, const at::Tensor& context,
                                     const Projections& projections, std::int64_t heads,
                                     const at::Tensor& bias) const;
};

// Compositions of LibTorch's operators, on any device.
std::shared_ptr<const Kernels> reference_kernels();
// The loops of pointwise.h, as one node of the autograd graph where the
// reference has many. For the CPU.
std::shared_ptr<const Kernels> cpu_kernels();
// The same over card_kernels.cu. Tensors must be on the device of `card`.
// REQUIRES: card_kernels_serve(model).
std::shared_ptr<const Kernels> cuda_kernels(std::shared_ptr<Card> card);

// Makes the kernels of `choice` for this model on this device. On a card it
// compiles the kernels and checks them, which takes about a second. If they do
// not compile, or compute wrong results, it logs a warning.
// RETURNS: the reference if there are no fast kernels.
std::shared_ptr<const Kernels> make_kernels(KernelChoice choice, torch::Device device,
                                            const ModelSpec& model);

// Checks that the functions between matrix products give the reference's
// results on `device`, forward and backward, with products of each of these
// types. `width`: a multiple of 4.
// ON FAILURE: kCorrupt names the first function that does not. Errors of the
// card are as error_of() (device.h) gives them.
Result<void> check_against_reference(const Kernels& kernels, torch::Device device,
                                     std::int64_t width,
                                     const std::vector<at::ScalarType>& types = {at::kFloat,
                                                                                 at::kBFloat16});

}  // namespace skerry::diffusion
