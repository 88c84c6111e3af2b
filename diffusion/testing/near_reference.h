// SPDX-License-Identifier: Apache-2.0
// Compares a whole model with given kernels to the reference, for tests.
// Include LibTorch's headers first.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "diffusion/model/model.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/testing/testing.h"

namespace skerry::diffusion::testing {

// Velocities, and the gradient of every weight, on the CPU.
inline void expect_near_reference(const std::shared_ptr<const Kernels>& ours, bool bf16) {
  const ModelSpec spec = tiny_model();
  std::vector<at::Tensor> weights;
  at::manual_seed(3);
  for (const auto& parameter : parameter_shapes(spec)) {
    weights.push_back((at::randn(parameter.shape) * 0.2).set_requires_grad(true));
  }
  const auto x = at::randn({4, 1, 8, 8}), t = at::rand({4});
  const auto velocity = [&](const Dit& dit) {
    const Autocast autocast(torch::kCPU, bf16);
    return dit.forward(x, t, at::arange(4, at::kLong)).to(at::kFloat);
  };
  const auto error = [](const at::Tensor& found, const at::Tensor& expected) {
    return ((found - expected).norm() / expected.norm()).item<double>();
  };
  const auto reference = velocity(Dit(spec, weights, torch::kCPU)),
             found = velocity(Dit(spec, weights, torch::kCPU, ours));
  EXPECT_FALSE(at::equal(reference, found));
  EXPECT_LT(error(found, reference), bf16 ? 0.02 : 1e-5);
  const auto expected_gradients = torch::autograd::grad({reference.square().mean()}, weights);
  const auto gradients = torch::autograd::grad({found.square().mean()}, weights);
  const auto shapes = parameter_shapes(spec);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (shapes[i].name.ends_with("to_k.bias")) continue;  // zero but for rounding
    EXPECT_LT(error(gradients[i], expected_gradients[i]), bf16 ? 0.05 : 1e-4) << shapes[i].name;
  }
}

}  // namespace skerry::diffusion::testing
