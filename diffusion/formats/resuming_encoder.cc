// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <optional>

#include "diffusion/formats/image_encoder.h"

namespace skerry::diffusion {
namespace {

Hash hash_of(const Hash& key, const std::vector<Image>& images) {
  Hasher hasher;
  hasher.update(key.view());
  for (const Image& image : images) {
    const std::array<std::int32_t, 3> shape{image.width, image.height, image.channels};
    hasher.update({reinterpret_cast<const char*>(shape.data()), sizeof shape});
    hasher.update({reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()});
  }
  return hasher.finish();
}

// Latents of one shape, which comes first.
struct Shape {
  std::int32_t channels = 0, size = 0;
  std::size_t values() const {
    return static_cast<std::size_t>(channels) * static_cast<std::size_t>(size) *
           static_cast<std::size_t>(size);
  }
};

std::string bytes_of(const std::vector<Latent>& latents) {
  const Shape shape{latents.front().channels, latents.front().size};
  std::string bytes(reinterpret_cast<const char*>(&shape), sizeof shape);
  for (const Latent& latent : latents) {
    bytes.append(reinterpret_cast<const char*>(latent.values.data()),
                 latent.values.size() * sizeof(float));
  }
  return bytes;
}

// Nothing where the bytes are not `count` latents.
std::optional<std::vector<Latent>> latents_of(const std::string& bytes, std::size_t count) {
  Shape shape;
  if (bytes.size() < sizeof shape) return std::nullopt;
  std::memcpy(&shape, bytes.data(), sizeof shape);
  const bool sane = shape.channels >= 1 &&
                    shape.channels <= static_cast<std::int32_t>(kMaxLatentChannels) &&
                    shape.size >= 1 && shape.size <= kMaxLatentSize;
  if (!sane || bytes.size() != sizeof shape + count * shape.values() * sizeof(float))
    return std::nullopt;
  std::vector<Latent> latents(count,
                              {shape.channels, shape.size, std::vector<float>(shape.values())});
  const char* from = bytes.data() + sizeof shape;
  for (Latent& latent : latents) {
    std::memcpy(latent.values.data(), from, shape.values() * sizeof(float));
    from += shape.values() * sizeof(float);
  }
  return latents;
}

}  // namespace

ResumingEncoder::ResumingEncoder(std::unique_ptr<ImageEncoder> inner, const Hash& key,
                                 KeptBatches& kept)
    : inner_(std::move(inner)), key_(key), kept_(kept) {}

LatentScaling ResumingEncoder::scaling() const { return inner_->scaling(); }

Result<std::vector<Latent>> ResumingEncoder::encode(const std::vector<Image>& images) {
  const Hash hash = hash_of(key_, images);
  if (const auto kept = kept_.next(hash)) {
    if (auto latents = latents_of(*kept, images.size())) {
      resumed_ += images.size();
      return std::move(*latents);
    }
  }
  ASSIGN_OR_RETURN(std::vector<Latent> latents, inner_->encode(images));
  TRY(kept_.append(hash, bytes_of(latents)));
  return latents;
}

}  // namespace skerry::diffusion
