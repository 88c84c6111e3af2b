// SPDX-License-Identifier: Apache-2.0
// Half of the user's autoencoder, which encodes images or decodes latents. It
// is an AutoencoderKL of diffusers (Rombach et al., arXiv 2112.10752), or any
// as TorchScript. Includes LibTorch: for this folder only.
// THREADS: one at a time.
// ON FAILURE: the error names a file that cannot be opened.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {

enum class AutoencoderHalf { kEncoder, kDecoder };

class Autoencoder {
 public:
  // Opens a folder with config.json and diffusion_pytorch_model.safetensors, or
  // a file of TorchScript, which is that half alone. Computes in fp32.
  static Result<Autoencoder> open(const std::string& path, AutoencoderHalf half,
                                  torch::Device device);
  Autoencoder(Autoencoder&&) noexcept;
  Autoencoder& operator=(Autoencoder&&) noexcept;
  ~Autoencoder();

  // RETURNS: the scaling of its config; none for TorchScript.
  std::optional<LatentScaling> scaling() const;
  std::optional<std::uint32_t> channels() const;  // of its latents

  // Decodes latents [n,C,s,s], unscaled as its encoder made them, to images
  // [n,3,S,S] or [n,1,S,S], about [−1, 1]. Splits them into smaller parts if
  // memory is short.
  // ON FAILURE: kInvalid if TorchScript fails or returns any other shape;
  // kExhausted if out of memory.
  // REQUIRES: the decoder was opened.
  Result<at::Tensor> decode(const at::Tensor& latents) const;
  // Encodes images [n,3,S,S] in [−1, 1] to the means of latents [n,C,s,s],
  // unscaled. ON FAILURE: as decode().
  // REQUIRES: the encoder was opened.
  Result<at::Tensor> encode(const at::Tensor& images) const;

  struct Half;

 private:
  explicit Autoencoder(std::unique_ptr<Half> half);
  std::unique_ptr<Half> half_;
};

}  // namespace skerry::diffusion
