// SPDX-License-Identifier: Apache-2.0
// Encodes images to latents while they are read. An implementation may include
// LibTorch; this interface does not.
// THREADS: one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/formats/image.h"
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

// Keeps what another encoder made in a file, so that an ingestion that was
// killed goes on where it was, to the same bytes. The file is a list of
// batches: a hash of `key` and the images, the latents and their own hash. A
// batch is taken from it if it is the next one there.
class ResumingEncoder final : public ImageEncoder {
 public:
  // `key` names all that latents depend on beside the images. What lies in the
  // file after a batch that does not fit, or is torn, is overwritten.
  static Result<std::unique_ptr<ResumingEncoder>> open(const std::string& path, const Hash& key,
                                                       std::unique_ptr<ImageEncoder> inner);
  ~ResumingEncoder() override;
  LatentScaling scaling() const override;
  Result<std::vector<Latent>> encode(const std::vector<Image>& images) override;
  std::uint64_t resumed() const;  // images that were not encoded again

 private:
  struct Impl;
  explicit ResumingEncoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
