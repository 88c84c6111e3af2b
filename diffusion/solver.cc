#include "diffusion/solver.h"

namespace skerry::diffusion {

at::Tensor integrate(Solver solver, std::uint32_t steps, at::Tensor x, const VelocityField& field,
                     const std::function<void(std::uint32_t)>& after_step) {
  for (std::uint32_t i = 0; i < steps; ++i) {
    const double t = 1 - static_cast<double>(i) / steps;
    const double next = 1 - static_cast<double>(i + 1) / steps;
    const at::Tensor velocity = field(x, t);
    const at::Tensor euler = x + velocity * (next - t);
    // At t = 0 the field is barely trained: the last step stays Euler's.
    x = solver == Solver::kHeun && i + 1 < steps ? x + (velocity + field(euler, next)) * ((next - t) / 2)
                                                 : euler;
    if (after_step) after_step(i + 1);
  }
  return x;
}

at::Tensor guide(const at::Tensor& labelled, const at::Tensor& null, double guidance) {
  return null + (labelled - null) * guidance;
}

}  // namespace skerry::diffusion
