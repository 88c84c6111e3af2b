// SPDX-License-Identifier: Apache-2.0
// Weights that are rounded once a step give the bits of weights that autocast
// rounds.
#include <gtest/gtest.h>

#include "diffusion/kernels/kernels.h"
#include "diffusion/model/model.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/testing/emulated_card.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train_state.h"

namespace skerry::diffusion {
namespace {

struct Found {
  at::Tensor velocity;
  std::vector<at::Tensor> gradients;
};

Found differentiate(const ModelSpec& model, std::vector<at::Tensor> weights,
                    const std::shared_ptr<const Kernels>& kernels) {
  const auto denoiser = make_denoiser(model, std::move(weights), torch::kCPU, kernels);
  at::manual_seed(5);
  const std::int64_t size = model.image_size, batch = 3;
  const at::Tensor x = at::randn({batch, model.channels, size, size}), t = at::rand({batch});
  Condition condition;
  if (model.is_pixart()) {
    condition.captions = at::randn({batch, 5, model.caption_dim});
    condition.mask = at::ones({batch, 5});
  } else {
    condition.labels = at::ones({batch}, at::kLong);
  }
  Found found;
  {
    const Autocast autocast(torch::kCPU, /*bf16=*/true);
    found.velocity = denoiser->forward(x, t, condition);
  }
  found.gradients = torch::autograd::grad({found.velocity}, denoiser->weights(),
                                          {at::randn_like(found.velocity)});
  return found;
}

class ReplicaWeights : public ::testing::TestWithParam<ModelSpec> {};

TEST_P(ReplicaWeights, RoundedOnceGiveTheBitsOfAutocast) {
  const ModelSpec& model = GetParam();
  std::vector<at::Tensor> raw = initial_weights(model, 3, 0, 0);
  at::manual_seed(4);
  for (at::Tensor& each : raw) each = at::randn_like(each) * 0.1;
  for (const auto& kernels : {reference_kernels(), cpu_kernels(),
                              cuda_kernels(std::make_shared<emulated::EmulatedCard>())}) {
    const auto leaves = replica_weights(raw, model, torch::kCPU, /*bf16=*/false);
    const auto rounded = replica_weights(raw, model, torch::kCPU, /*bf16=*/true);
    const Found expected = differentiate(model, leaves, kernels),
                found = differentiate(model, rounded, kernels);
    EXPECT_TRUE(at::equal(found.velocity, expected.velocity)) << kernels->fingerprint();
    int narrow = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      narrow += rounded[i].scalar_type() == at::kBFloat16;
      EXPECT_EQ(found.gradients[i].scalar_type(), rounded[i].scalar_type());
      EXPECT_TRUE(at::equal(found.gradients[i].to(at::kFloat), expected.gradients[i]))
          << parameter_shapes(model)[i].name << " by " << kernels->fingerprint();
    }
    EXPECT_GE(narrow, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ReplicaWeights,
                         ::testing::Values(testing::tiny_model(), testing::tiny_pixart()),
                         [](const auto& each) {
                           return each.param.is_pixart() ? "Pixart" : "Dit";
                         });

}  // namespace
}  // namespace skerry::diffusion
