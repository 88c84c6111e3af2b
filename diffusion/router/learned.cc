// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/learned.h"

#include "base/text.h"
#include "diffusion/train/train_state.h"

namespace skerry::diffusion {

LearnedRouter::LearnedRouter(Dit dit, LabelShares shares)
    : dit_(std::move(dit)), shares_(std::move(shares)) {
  shares_.move_to(dit_.device());
}

at::Tensor LearnedRouter::log_probabilities(const at::Tensor& x_t, double t,
                                            const at::Tensor& labels) {
  const torch::NoGradGuard no_grad;
  const ModelSpec& model = dit_.spec();
  const std::int64_t size = model.image_size;
  const at::Tensor x = x_t.to(dit_.device(), at::kFloat).reshape({-1, model.channels, size, size});
  const at::Tensor seen =
      torch::log_softmax(dit_.logits(x, torch::full({x.size(0)}, t, x.options())), 1);
  const at::Tensor log_p =
      torch::log_softmax(seen + shares_.log_given(labels) - shares_.log_all(), 1);
  return log_p.to(x_t.device());
}

Result<std::unique_ptr<Router>> load_learned_router(const std::string& weights,
                                                    const std::string& statistics,
                                                    torch::Device device) {
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(weights));
  ASSIGN_OR_RETURN(const ModelSpec model, model_of(file.header().metadata));
  ASSIGN_OR_RETURN(const RouterFolder folder, read_router_folder(statistics));
  const std::uint64_t pixels = folder.shared.whole.dimensions();
  if (model.router_experts != folder.partitions.size() || model.pixels() != pixels) {
    return fail(ErrorCode::kInvalid,
                text(weights, ": a router of ", model.router_experts, " experts on ",
                     model.pixels(), " values, but ", statistics, " has ", folder.partitions.size(),
                     " partitions of ", pixels));
  }
  ASSIGN_OR_RETURN(std::vector<at::Tensor> tensors, load_weights(file, "ema/", model));
  for (at::Tensor& tensor : tensors) tensor = tensor.to(device);
  Dit dit(model, std::move(tensors), device, make_kernels(KernelChoice::kFast, device, model));
  return std::unique_ptr<Router>(
      std::make_unique<LearnedRouter>(std::move(dit), LabelShares(folder.partitions)));
}

}  // namespace skerry::diffusion
