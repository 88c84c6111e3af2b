// SPDX-License-Identifier: Apache-2.0
// Latents back to images, by the autoencoder that the user brings: the decoder
// of an AutoencoderKL as diffusers has it (Rombach et al., arXiv 2112.10752),
// or any as TorchScript. Includes LibTorch: for this folder only. Thread rule:
// one thread at a time. Failure rule: what cannot be opened is an error that
// names the file.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {

class Autoencoder {
 public:
  // A folder with config.json and diffusion_pytorch_model.safetensors, or a
  // file of TorchScript. Decodes in fp32.
  static Result<Autoencoder> open(const std::string& path, torch::Device device);
  Autoencoder(Autoencoder&&) noexcept;
  Autoencoder& operator=(Autoencoder&&) noexcept;
  ~Autoencoder();

  // What its config names; none of TorchScript.
  std::optional<LatentScaling> scaling() const;
  std::optional<std::uint32_t> channels() const;  // of its latents

  // Latents [n,C,s,s] as its encoder made them, unscaled, to images [n,3,S,S]
  // or [n,1,S,S], about [−1, 1]. Where memory is too little for all, in smaller
  // parts. kInvalid where TorchScript fails or answers anything else,
  // kExhausted where memory ends.
  Result<at::Tensor> decode(const at::Tensor& latents) const;

  struct Decoder;

 private:
  explicit Autoencoder(std::unique_ptr<Decoder> decoder);
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace skerry::diffusion
