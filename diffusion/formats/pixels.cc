// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/pixels.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBufferBytes = 4U << 20;

Error errno_failure(std::string_view doing) {
  const ErrorCode code =
      errno == ENOSPC || errno == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo;
  return fail(code, text(doing, ": ", std::strerror(errno)));
}

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
  int descriptor = -1;
  int planes = 0;
  int size = 0;
  bool latents = false;
  std::uint64_t count = 0;
  std::vector<std::uint8_t> buffer;
  void* mapped = nullptr;
  std::size_t mapped_bytes = 0;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (mapped != nullptr) munmap(mapped, mapped_bytes);
    if (descriptor >= 0) close(descriptor);
  }

  Result<void> added() {
    ++count;
    return buffer.size() >= kBufferBytes ? flush() : Result<void>();
  }

  Result<void> flush() {
    std::size_t done = 0;
    while (done < buffer.size()) {
      const ssize_t wrote = write(descriptor, buffer.data() + done, buffer.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return errno_failure("writing decoded images");
      done += static_cast<std::size_t>(wrote);
    }
    buffer.clear();
    return {};
  }
};

Result<PixelStore> PixelStore::create(const std::string& folder, int planes, int size) {
  PixelStore store;
  store.impl_ = std::make_shared<Impl>();
  store.impl_->planes = planes;
  store.impl_->size = size;
  std::string name = folder + "/pixels.XXXXXX";
  store.impl_->descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (store.impl_->descriptor < 0) return errno_failure(text("scratch file in ", folder));
  unlink(name.c_str());
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
      impl.buffer.push_back(image.pixels[i * channels + channel]);
  }
  return impl.added();
}

Result<void> PixelStore::append(std::span<const std::uint16_t> halves) {
  Impl& impl = *impl_;
  const std::size_t side = static_cast<std::size_t>(impl.size);
  SKERRY_CHECK(impl.latents && halves.size() == static_cast<std::size_t>(impl.planes) * side * side,
               "latents of another size");
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(halves.data());
  impl.buffer.insert(impl.buffer.end(), bytes, bytes + halves.size_bytes());
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
  if (impl.mapped == nullptr && impl.count > 0) {
    impl.mapped_bytes = impl.count * stride;
    void* mapped = mmap(nullptr, impl.mapped_bytes, PROT_READ, MAP_SHARED, impl.descriptor, 0);
    if (mapped == MAP_FAILED) return errno_failure("mapping decoded images");
    impl.mapped = mapped;
  }
  return PixelView{static_cast<const std::uint8_t*>(impl.mapped),
                   impl.count,
                   stride,
                   channels,
                   impl.size,
                   impl.latents};
}

std::uint64_t PixelStore::count() const { return impl_->count; }

}  // namespace skerry::diffusion
