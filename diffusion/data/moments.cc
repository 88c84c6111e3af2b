#include "diffusion/data/moments.h"

namespace skerry::diffusion {

PixelMoments pixel_moments(const PixelView& pixels, std::span<const std::uint32_t> rows) {
  const std::size_t d = pixels.dimensions();
  std::vector<std::uint64_t> sum(d), square(d);
  for (const std::uint32_t row : rows) {
    const auto image = pixels.image(row);
    for (std::size_t i = 0; i < d; ++i) {
      sum[i] += image[i];
      square[i] += std::uint64_t{image[i]} * image[i];
    }
  }
  const auto n = static_cast<double>(rows.size());
  PixelMoments out{std::vector<double>(d), std::vector<double>(d)};
  for (std::size_t i = 0; i < d; ++i) {
    const double level = static_cast<double>(sum[i]) / n;
    out.mean[i] = level / 127.5 - 1;
    out.variance[i] = (static_cast<double>(square[i]) / n - level * level) / (127.5 * 127.5);
  }
  return out;
}

}  // namespace skerry::diffusion
