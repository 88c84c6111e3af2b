// SPDX-License-Identifier: Apache-2.0
// Stores the decoded pixels of a dataset, or its latents, at any size. It
// writes them in order to a scratch file and then maps it, so that memory holds
// only the parts in use. The file has no name once it is open, and disappears
// with the object.
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
  // Reads an image in the model's range: a pixel as x = u8 / 127.5 − 1, a
  // latent unchanged.
  // REQUIRES: out has dimensions() values.
  void read(std::uint64_t index, std::span<float> out) const;
};

class PixelStore {
 public:
  // Each sample has `planes` (1 or 3) of size × size bytes. The scratch file is
  // in `folder`.
  static Result<PixelStore> create(const std::string& folder, int planes, int size);
  // The same for latents of so many channels, which map() must then name.
  static Result<PixelStore> create_for_latents(const std::string& folder, int channels, int size);
  // Appends an image of size × size. A store with three planes repeats grey
  // into each.
  // ON FAILURE: kExhausted: the disk is full.
  Result<void> append(const Image& image);
  Result<void> append(std::span<const std::uint16_t> halves);  // one latent
  // Ends the writing. With channels = 1 the view has only the first plane.
  Result<PixelView> map(int channels);
  std::uint64_t count() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
