// SPDX-License-Identifier: Apache-2.0
// What `skerry-engine sample --vae` makes of latents, and `ingest --vae` of
// images. `run-autoencoder decode VAE IN OUT` reads `latents` [N,C,s,s] of one
// safetensors file and writes `images` [N,3,S,S] to another; `encode` goes the
// other way. A refusal goes to standard error.
#include <torch/torch.h>

#include <cstdio>
#include <string_view>

#include "diffusion/model/autoencoder.h"
#include "storage/safetensors.h"

namespace skerry {
namespace {

using diffusion::Autoencoder;
using diffusion::AutoencoderHalf;

Result<void> run(bool encodes, const std::string& path, const std::string& in,
                 const std::string& out) {
  ASSIGN_OR_RETURN(
      const Autoencoder opened,
      Autoencoder::open(path, encodes ? AutoencoderHalf::kEncoder : AutoencoderHalf::kDecoder,
                        torch::kCPU));
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(in));
  ASSIGN_OR_RETURN(const storage::TensorView given, file.tensor(encodes ? "images" : "latents"));
  const std::vector<std::int64_t> shape(given.shape.begin(), given.shape.end());
  const at::Tensor x = at::from_blob(const_cast<char*>(given.data.data()), shape, at::kFloat);
  ASSIGN_OR_RETURN(at::Tensor made, encodes ? opened.encode(x) : opened.decode(x));
  made = made.contiguous();
  const storage::TensorView view{encodes ? "latents" : "images",
                                 storage::DType::kF32,
                                 {made.sizes().begin(), made.sizes().end()},
                                 {static_cast<const char*>(made.data_ptr()), made.nbytes()}};
  return storage::write_safetensors(out, {view}, {});
}

}  // namespace
}  // namespace skerry

int main(int argc, char** argv) {
  const std::string_view what = argc == 5 ? argv[1] : "";
  if (what != "encode" && what != "decode") {
    std::fprintf(stderr, "usage: run-autoencoder encode|decode VAE IN OUT\n");
    return 2;
  }
  at::set_num_threads(1);
  const auto done = skerry::run(what == "encode", argv[2], argv[3], argv[4]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
