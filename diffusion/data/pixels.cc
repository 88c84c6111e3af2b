#include "diffusion/data/pixels.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBufferBytes = 4U << 20;

Error errno_failure(std::string_view doing) {
  const ErrorCode code = errno == ENOSPC || errno == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo;
  return fail(code, text(doing, ": ", std::strerror(errno)));
}

}  // namespace

struct PixelStore::Impl {
  int descriptor = -1;
  int planes = 0;
  int size = 0;
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

Result<void> PixelStore::append(const Image& image) {
  Impl& impl = *impl_;
  SKERRY_CHECK(image.width == impl.size && image.height == impl.size, "image of another size");
  const std::size_t area = static_cast<std::size_t>(impl.size) * static_cast<std::size_t>(impl.size);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t plane = 0; plane < static_cast<std::size_t>(impl.planes); ++plane) {
    const std::size_t channel = channels == 1 ? 0 : plane;
    for (std::size_t i = 0; i < area; ++i) impl.buffer.push_back(image.pixels[i * channels + channel]);
  }
  ++impl.count;
  if (impl.buffer.size() >= kBufferBytes) return impl.flush();
  return {};
}

Result<PixelView> PixelStore::map(int channels) {
  Impl& impl = *impl_;
  SKERRY_CHECK(channels >= 1 && channels <= impl.planes, "more channels than planes");
  TRY(impl.flush());
  const std::uint64_t area = static_cast<std::uint64_t>(impl.size) * static_cast<std::uint64_t>(impl.size);
  const std::uint64_t stride = area * static_cast<std::uint64_t>(impl.planes);
  if (impl.mapped == nullptr && impl.count > 0) {
    impl.mapped_bytes = impl.count * stride;
    void* mapped = mmap(nullptr, impl.mapped_bytes, PROT_READ, MAP_SHARED, impl.descriptor, 0);
    if (mapped == MAP_FAILED) return errno_failure("mapping decoded images");
    impl.mapped = mapped;
  }
  return PixelView{static_cast<const std::uint8_t*>(impl.mapped), impl.count, stride, channels, impl.size};
}

std::uint64_t PixelStore::count() const { return impl_->count; }

}  // namespace skerry::diffusion
