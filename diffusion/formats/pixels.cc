// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/pixels.h"

#include <cstring>

#include "base/check.h"
#include "base/unique_fd.h"
#include "diffusion/formats/half.h"
#include "storage/files.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBufferBytes = 4U << 20;
constexpr char kShownAs[] = "decoded images";

}  // namespace

void PixelView::read(std::uint64_t index, std::span<float> out) const {
  const std::uint8_t* const from = data + index * stride;
  if (!latents) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(from[i]) / 127.5F - 1.F;
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, from + 2 * i, sizeof half);
    out[i] = from_half(half);
  }
}

struct PixelStore::Impl {
  UniqueFd file;
  int planes = 0;
  int size = 0;
  bool latents = false;
  std::uint64_t count = 0;
  std::string buffer;
  storage::MappedFile mapped;

  Result<void> added() {
    ++count;
    return buffer.size() >= kBufferBytes ? flush() : Result<void>();
  }

  Result<void> flush() {
    TRY(storage::write_all(file.get(), buffer, kShownAs));
    buffer.clear();
    return {};
  }
};

Result<PixelStore> PixelStore::create(const std::string& folder, int planes, int size) {
  PixelStore store;
  store.impl_ = std::make_shared<Impl>();
  store.impl_->planes = planes;
  store.impl_->size = size;
  ASSIGN_OR_RETURN(store.impl_->file, storage::open_scratch_file(folder));
  return store;
}

Result<PixelStore> PixelStore::create_for_latents(const std::string& folder, int channels,
                                                  int size) {
  ASSIGN_OR_RETURN(PixelStore store, create(folder, channels, size));
  store.impl_->latents = true;
  return store;
}

Result<void> PixelStore::append(const Image& image) {
  Impl& impl = *impl_;
  SKERRY_CHECK(image.width == impl.size && image.height == impl.size, "image of another size");
  const std::size_t area =
      static_cast<std::size_t>(impl.size) * static_cast<std::size_t>(impl.size);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t plane = 0; plane < static_cast<std::size_t>(impl.planes); ++plane) {
    const std::size_t channel = channels == 1 ? 0 : plane;
    for (std::size_t i = 0; i < area; ++i)
      impl.buffer.push_back(static_cast<char>(image.pixels[i * channels + channel]));
  }
  return impl.added();
}

Result<void> PixelStore::append(std::span<const std::uint16_t> halves) {
  Impl& impl = *impl_;
  const std::size_t side = static_cast<std::size_t>(impl.size);
  SKERRY_CHECK(impl.latents && halves.size() == static_cast<std::size_t>(impl.planes) * side * side,
               "latents of another size");
  impl.buffer.append(reinterpret_cast<const char*>(halves.data()), halves.size_bytes());
  return impl.added();
}

Result<PixelView> PixelStore::map(int channels) {
  Impl& impl = *impl_;
  SKERRY_CHECK(channels >= 1 && channels <= impl.planes, "more channels than planes");
  TRY(impl.flush());
  const std::uint64_t area =
      static_cast<std::uint64_t>(impl.size) * static_cast<std::uint64_t>(impl.size);
  const std::uint64_t stride =
      area * static_cast<std::uint64_t>(impl.planes) * (impl.latents ? 2 : 1);
  if (impl.mapped.bytes().empty()) {
    ASSIGN_OR_RETURN(impl.mapped,
                     storage::MappedFile::map(impl.file.get(), impl.count * stride, kShownAs));
  }
  return PixelView{reinterpret_cast<const std::uint8_t*>(impl.mapped.bytes().data()),
                   impl.count,
                   stride,
                   channels,
                   impl.size,
                   impl.latents};
}

std::uint64_t PixelStore::count() const { return impl_->count; }

}  // namespace skerry::diffusion
