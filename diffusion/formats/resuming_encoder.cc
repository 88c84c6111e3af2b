// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "diffusion/formats/image_encoder.h"
#include "storage/files.h"

namespace skerry::diffusion {
namespace {

constexpr std::uint32_t kMaxBatch = 4096;

// Before the latents of a batch.
struct Head {
  std::array<char, Hash::kBytes> images{}, latents{};
  std::uint32_t count = 0;
  std::int32_t channels = 0, size = 0;
  std::uint32_t unused = 0;
};

std::string_view bytes_of(const Head& head) {
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

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

}  // namespace

struct ResumingEncoder::Impl {
  std::unique_ptr<ImageEncoder> inner;
  Hash key;
  std::unique_ptr<storage::File> file;
  std::uint64_t at = 0;  // of the next batch
  bool is_at_end = false;
  std::uint64_t resumed = 0;

  bool read(std::span<char> to, std::uint64_t from) const {
    const Result<std::size_t> count = file->read_at(from, to);
    return count && *count == to.size();
  }

  // The next batch, if it is of these images and whole.
  std::optional<std::vector<Latent>> next(const Hash& images, std::size_t count) {
    Head head;
    if (is_at_end || !read({reinterpret_cast<char*>(&head), sizeof head}, at)) return std::nullopt;
    const bool fits = std::memcmp(head.images.data(), images.view().data(), Hash::kBytes) == 0 &&
                      head.count == count && count <= kMaxBatch && head.channels >= 1 &&
                      head.channels <= static_cast<std::int32_t>(kMaxLatentChannels) &&
                      head.size >= 1 && head.size <= kMaxLatentSize;
    if (!fits) return std::nullopt;
    const std::size_t each = static_cast<std::size_t>(head.channels) *
                             static_cast<std::size_t>(head.size) *
                             static_cast<std::size_t>(head.size);
    std::string bytes(count * each * sizeof(float), '\0');
    if (!read(bytes, at + sizeof head)) return std::nullopt;
    if (blake2b(bytes).view() != std::string_view(head.latents.data(), Hash::kBytes))
      return std::nullopt;
    std::vector<Latent> latents(count, {head.channels, head.size, std::vector<float>(each)});
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(latents[i].values.data(), bytes.data() + i * each * sizeof(float),
                  each * sizeof(float));
    at += sizeof head + bytes.size();
    resumed += count;
    return latents;
  }

  Result<void> append(const Hash& images, const std::vector<Latent>& latents) {
    if (!is_at_end) TRY(file->resize(at));
    is_at_end = true;
    std::string bytes;
    for (const Latent& latent : latents) {
      bytes.append(reinterpret_cast<const char*>(latent.values.data()),
                   latent.values.size() * sizeof(float));
    }
    Head head;
    const Hash hash = blake2b(bytes);
    std::memcpy(head.images.data(), images.view().data(), Hash::kBytes);
    std::memcpy(head.latents.data(), hash.view().data(), Hash::kBytes);
    head.count = static_cast<std::uint32_t>(latents.size());
    head.channels = latents.front().channels;
    head.size = latents.front().size;
    TRY(file->write_at(at, std::string(bytes_of(head)) + bytes));
    at += sizeof head + bytes.size();
    return {};
  }
};

Result<std::unique_ptr<ResumingEncoder>> ResumingEncoder::open(
    const std::string& path, const Hash& key, std::unique_ptr<ImageEncoder> inner) {
  auto impl = std::make_unique<Impl>();
  impl->inner = std::move(inner);
  impl->key = key;
  ASSIGN_OR_RETURN(impl->file, storage::posix_files().open(path, storage::Files::Open::kWrite));
  return std::unique_ptr<ResumingEncoder>(new ResumingEncoder(std::move(impl)));
}

ResumingEncoder::ResumingEncoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResumingEncoder::~ResumingEncoder() = default;

LatentScaling ResumingEncoder::scaling() const { return impl_->inner->scaling(); }
std::uint64_t ResumingEncoder::resumed() const { return impl_->resumed; }

Result<std::vector<Latent>> ResumingEncoder::encode(const std::vector<Image>& images) {
  const Hash hash = hash_of(impl_->key, images);
  if (auto kept = impl_->next(hash, images.size())) return std::move(*kept);
  ASSIGN_OR_RETURN(std::vector<Latent> latents, impl_->inner->encode(images));
  TRY(impl_->append(hash, latents));
  return latents;
}

}  // namespace skerry::diffusion
