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

// Labels, or captions of 1 to 5 tokens with numbers behind what the mask keeps.
inline Condition some_condition(const ModelSpec& spec, std::int64_t batch) {
  if (!spec.is_pixart()) return {.labels = at::arange(batch, at::kLong) % spec.null_label()};
  const auto captions = at::randn({batch, 5, spec.caption_dim});
  const auto lengths = at::arange(batch, at::kLong) * 2 % 5 + 1;
  return {.captions = captions,
          .mask = (at::arange(5).unsqueeze(0) < lengths.unsqueeze(1)).to(at::kFloat)};
}

// Velocities, and the gradient of every weight, on the CPU.
inline void expect_near_reference(const ModelSpec& spec, const std::shared_ptr<const Kernels>& ours,
                                  bool bf16) {
  std::vector<at::Tensor> weights;
  at::manual_seed(3);
  for (const auto& parameter : parameter_shapes(spec)) {
    weights.push_back((at::randn(parameter.shape) * 0.2).set_requires_grad(true));
  }
  const auto x = at::randn({4, 1, 8, 8}), t = at::rand({4});
  const Condition condition = some_condition(spec, 4);
  const auto velocity = [&](const std::unique_ptr<Denoiser>& model) {
    const Autocast autocast(torch::kCPU, bf16);
    return model->forward(x, t, condition).to(at::kFloat);
  };
  const auto error = [](const at::Tensor& found, const at::Tensor& expected) {
    return ((found - expected).norm() / expected.norm()).item<double>();
  };
  const auto reference = velocity(make_denoiser(spec, weights, torch::kCPU)),
             found = velocity(make_denoiser(spec, weights, torch::kCPU, ours));
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
