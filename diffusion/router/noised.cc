// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/noised.h"

#include "base/random.h"

namespace skerry::diffusion {

NoisedImages noised(const RoutedImages& images, std::size_t begin, std::size_t end, double t,
                    std::uint64_t seed, std::uint64_t draw) {
  const auto d = static_cast<std::int64_t>(images.pixels.dimensions());
  const auto b = static_cast<std::int64_t>(end - begin);
  at::Tensor noise = torch::empty({b, d}), x0 = torch::empty({b, d});
  float* epsilon = noise.data_ptr<float>();
  float* value = x0.data_ptr<float>();
  for (std::size_t i = begin; i < end; ++i) {
    Stream stream(Position{.seed = seed,
                           .step = draw,
                           .sample = static_cast<std::uint32_t>(i),
                           .purpose = Purpose::kNoise});
    stream.fill_normal({epsilon, images.pixels.dimensions()});
    epsilon += d;
    images.pixels.read(images.rows[i], {value, images.pixels.dimensions()});
    value += d;
  }
  return {(1 - t) * x0 + t * noise, noise - x0};
}

RoutedImages thinned(const RoutedImages& images, std::size_t limit) {
  if (images.rows.size() <= limit) return images;
  RoutedImages out{images.pixels, {}, {}, {}};
  for (std::size_t i = 0; i < limit; ++i) {
    const std::size_t from = i * images.rows.size() / limit;
    out.rows.push_back(images.rows[from]);
    out.partitions.push_back(images.partitions[from]);
    if (!images.labels.empty()) out.labels.push_back(images.labels[from]);
  }
  return out;
}

}  // namespace skerry::diffusion
