// SPDX-License-Identifier: Apache-2.0
// What `skerry-engine sample --vae` makes of latents: decode-latents VAE IN OUT
// reads `latents` [N,C,s,s] of one safetensors file and writes `images`
// [N,3,S,S] to another. A refusal goes to standard error.
#include <torch/torch.h>

#include <cstdio>

#include "diffusion/model/autoencoder.h"
#include "storage/safetensors.h"

namespace skerry {
namespace {

Result<void> decode(const std::string& autoencoder, const std::string& in, const std::string& out) {
  ASSIGN_OR_RETURN(const diffusion::Autoencoder opened,
                   diffusion::Autoencoder::open(autoencoder, torch::kCPU));
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(in));
  ASSIGN_OR_RETURN(const storage::TensorView latents, file.tensor("latents"));
  const std::vector<std::int64_t> shape(latents.shape.begin(), latents.shape.end());
  ASSIGN_OR_RETURN(
      at::Tensor images,
      opened.decode(at::from_blob(const_cast<char*>(latents.data.data()), shape, at::kFloat)));
  images = images.contiguous();
  const storage::TensorView view{"images",
                                 storage::DType::kF32,
                                 {images.sizes().begin(), images.sizes().end()},
                                 {static_cast<const char*>(images.data_ptr()), images.nbytes()}};
  return storage::write_safetensors(out, {view}, {});
}

}  // namespace
}  // namespace skerry

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: decode-latents VAE IN OUT\n");
    return 2;
  }
  at::set_num_threads(1);
  const auto done = skerry::decode(argv[1], argv[2], argv[3]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
