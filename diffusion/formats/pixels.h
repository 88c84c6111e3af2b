// SPDX-License-Identifier: Apache-2.0
// The decoded pixels of a dataset, or its latents, of any size: written in
// order to a scratch file, then mapped, so that memory holds only what is being
// looked at. The file has no name once it is open and goes with the object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "diffusion/formats/image.h"

namespace skerry::diffusion {

// `count` images [channels, size, size], one every `stride` bytes: pixels as
// bytes, or latents as halves, little-endian. A view: the store owns them.
struct PixelView {
  const std::uint8_t* data = nullptr;
  std::uint64_t count = 0;
  std::uint64_t stride = 0;
  int channels = 0;
  int size = 0;
  bool latents = false;
  std::uint64_t dimensions() const {
    return static_cast<std::uint64_t>(channels) * static_cast<std::uint64_t>(size) *
           static_cast<std::uint64_t>(size);
  }
  std::uint64_t image_bytes() const { return dimensions() * (latents ? 2 : 1); }
  std::span<const std::uint8_t> image(std::uint64_t index) const {
    return {data + index * stride, image_bytes()};
  }
  // As the model sees it: of a pixel x = u8 / 127.5 − 1, a latent as it is.
  // REQUIRES: out has dimensions() values.
  void read(std::uint64_t index, std::span<float> out) const;
};

class PixelStore {
 public:
  // `planes` a sample (1 or 3) of size × size bytes each. The scratch file is
  // made in `folder`.
  static Result<PixelStore> create(const std::string& folder, int planes, int size);
  // The same for latents of so many channels, which map() then names.
  static Result<PixelStore> create_for_latents(const std::string& folder, int channels, int size);
  // `image` is size × size; grey is repeated into three planes where the store
  // has three. kExhausted: disk full.
  Result<void> append(const Image& image);
  Result<void> append(std::span<const std::uint16_t> halves);  // of a whole latent
  // Ends the writing. With channels = 1 only the first plane shows.
  Result<PixelView> map(int channels);
  std::uint64_t count() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
