// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/solver.h"

namespace skerry::diffusion {

at::Tensor integrate(Solver solver, std::uint32_t steps, at::Tensor x, const VelocityField& field,
                     const std::function<void(std::uint32_t)>& after_step) {
  at::Tensor before;  // the velocity of the step before
  for (std::uint32_t i = 0; i < steps; ++i) {
    const double t = 1 - static_cast<double>(i) / steps;
    const double next = 1 - static_cast<double>(i + 1) / steps;
    const at::Tensor velocity = field(x, t);
    const bool extrapolates = solver == Solver::kAdams && before.defined();
    const at::Tensor euler =
        x + (extrapolates ? velocity * 1.5 - before * 0.5 : velocity) * (next - t);
    // At t = 0 the field is barely trained: the last step of Heun stays
    // Euler's.
    x = solver == Solver::kHeun && i + 1 < steps
            ? x + (velocity + field(euler, next)) * ((next - t) / 2)
            : euler;
    before = velocity;
    if (after_step) after_step(i + 1);
  }
  return x;
}

at::Tensor guide(const at::Tensor& labelled, const at::Tensor& null, double guidance) {
  return null + (labelled - null) * guidance;
}

}  // namespace skerry::diffusion
