// SPDX-License-Identifier: Apache-2.0
// encode_bench VAE SIZE: measures the engine's encoding of images, for
// comparison with tests/bench/encode_rival.py. Answers a line N with the
// processor seconds of encoding N batches of 16 images of SIZE x SIZE.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "diffusion/formats/read_images.h"
#include "diffusion/model/image_encoder.h"
#include "tests/bench/measure.h"

using namespace skerry;
using namespace skerry::bench;
using namespace skerry::diffusion;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: encode_bench VAE SIZE\n");
    return 2;
  }
  const auto encoder = must(open_image_encoder(argv[1], /*device=*/-1, /*threads=*/1, {}));
  const int size = std::atoi(argv[2]);
  Image image{size, size, 3, {}};
  std::vector<Image> batch;
  for (std::size_t n = 0; n < kEncodeBatch; ++n) {
    image.pixels.assign(static_cast<std::size_t>(3 * size * size), 0);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13 ^ n);
    batch.push_back(image);
  }
  for (std::string line; std::getline(std::cin, line);) {
    const double begin = processor_seconds();
    for (int n = std::atoi(line.c_str()); n > 0; --n) must(encoder->encode(batch));
    std::printf("%f\n", processor_seconds() - begin);
    std::fflush(stdout);
  }
}
