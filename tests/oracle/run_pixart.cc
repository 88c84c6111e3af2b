// SPDX-License-Identifier: Apache-2.0
// The engine's forward pass of a PixArt. `run-pixart IN OUT` reads the model's
// weights and `x`, `t` in [0,1], `captions` and `mask` from a safetensors file.
// Its metadata names the shape as a checkpoint's does. It writes `velocity` to
// another file.
#include <torch/torch.h>

#include <cstdio>

#include "diffusion/model/model.h"
#include "diffusion/train/train_state.h"

namespace skerry::diffusion {
namespace {

Result<at::Tensor> tensor(const storage::Safetensors& file, const std::string& name) {
  ASSIGN_OR_RETURN(const storage::TensorView view, file.tensor(name));
  const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.end());
  return at::from_blob(const_cast<char*>(view.data.data()), shape, at::kFloat).clone();
}

Result<void> run(const std::string& in, const std::string& out) {
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(in));
  ASSIGN_OR_RETURN(const ModelSpec spec, model_of(file.header().metadata));
  ASSIGN_OR_RETURN(std::vector<at::Tensor> weights, exported_weights(file, spec));
  ASSIGN_OR_RETURN(const at::Tensor x, tensor(file, "x"));
  ASSIGN_OR_RETURN(const at::Tensor t, tensor(file, "t"));
  ASSIGN_OR_RETURN(const at::Tensor captions, tensor(file, "captions"));
  ASSIGN_OR_RETURN(const at::Tensor mask, tensor(file, "mask"));
  const at::NoGradGuard no_grad;
  const auto model = make_denoiser(spec, std::move(weights), torch::kCPU);
  const at::Tensor velocity =
      model->forward(x, t, {.captions = captions, .mask = mask}).contiguous();
  const storage::TensorView view{
      "velocity",
      storage::DType::kF32,
      {velocity.sizes().begin(), velocity.sizes().end()},
      {static_cast<const char*>(velocity.data_ptr()), velocity.nbytes()}};
  return storage::write_safetensors(out, {view}, {});
}

}  // namespace
}  // namespace skerry::diffusion

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: run-pixart IN OUT\n");
    return 2;
  }
  at::set_num_threads(1);
  const auto done = skerry::diffusion::run(argv[1], argv[2]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
