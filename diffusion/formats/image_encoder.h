// SPDX-License-Identifier: Apache-2.0
// Encodes images to latents while they are read. An implementation may include
// LibTorch; this interface does not.
// THREADS: one.
#pragma once

#include <memory>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/formats/image.h"
#include "diffusion/formats/kept_batches.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {

class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;
  virtual LatentScaling scaling() const = 0;
  // RETURNS: a latent of each image, not scaled yet.
  // REQUIRES: equal squares, RGB or grey.
  // ON FAILURE: kInvalid: the images' size does not fit; kExhausted: out of
  // memory.
  virtual Result<std::vector<Latent>> encode(const std::vector<Image>& images) = 0;
};

// Keeps what another encoder makes in a file, and takes from there what an
// earlier attempt made.
class ResumingEncoder final : public ImageEncoder {
 public:
  // `key` names all that latents depend on beside the images. LIFETIME: `kept`
  // outlives it.
  ResumingEncoder(std::unique_ptr<ImageEncoder> inner, const Hash& key, KeptBatches& kept);
  LatentScaling scaling() const override;
  Result<std::vector<Latent>> encode(const std::vector<Image>& images) override;
  std::uint64_t resumed() const { return resumed_; }  // images that were not encoded again

 private:
  std::unique_ptr<ImageEncoder> inner_;
  Hash key_;
  KeptBatches& kept_;
  std::uint64_t resumed_ = 0;
};

}  // namespace skerry::diffusion
