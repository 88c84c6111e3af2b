// SPDX-License-Identifier: Apache-2.0
// Integrates dx/dt = v(x, t) from noise (t = 1) to data (t = 0). Includes
// LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <functional>

#include "diffusion/sample/sample.h"

namespace skerry::diffusion {

using VelocityField = std::function<at::Tensor(const at::Tensor& x, double t)>;

// Takes `steps` equal steps and calls `after_step` with the number of finished
// steps.
// - Heun evaluates the field twice a step, but once in the last, which ends on
//   data.
// - Adams is the two-step method of Adams and Bashforth, begun by Euler. It is
//   of second order at one evaluation a step, but wrong if the field jumps
//   between steps. See Hairer, Nørsett and Wanner, "Solving Ordinary
//   Differential Equations I", III.1; for diffusion PNDM, arXiv 2202.09778.
at::Tensor integrate(Solver solver, std::uint32_t steps, at::Tensor x, const VelocityField& field,
                     const std::function<void(std::uint32_t)>& after_step);

// Classifier-free guidance (Ho & Salimans, arXiv 2207.12598): v_null +
// guidance·(v_label − v_null).
at::Tensor guide(const at::Tensor& labelled, const at::Tensor& null, double guidance);

}  // namespace skerry::diffusion
