// SPDX-License-Identifier: Apache-2.0
// encode_bench images VAE SIZE | text DIR TOKENS: measures the engine's
// encoders, for comparison with tests/bench/encode_rival.py. Answers a line N
// with the processor seconds of encoding N batches. A batch is 16 images of
// SIZE x SIZE, or 40 captions of TOKENS tokens.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string_view>

#include "diffusion/formats/read_images.h"
#include "diffusion/model/image_encoder.h"
#include "diffusion/model/text_encoder.h"
#include "tests/bench/measure.h"

using namespace skerry;
using namespace skerry::bench;
using namespace skerry::diffusion;

namespace {

constexpr std::size_t kCaptions = 40;

using Encode = std::function<void()>;  // one batch

Encode images(const char* vae, int size) {
  const std::shared_ptr<ImageEncoder> encoder =
      must(open_image_encoder(vae, /*device=*/-1, /*threads=*/1, {}));
  Image image{size, size, 3, {}};
  std::vector<Image> batch;
  for (std::size_t n = 0; n < kEncodeBatch; ++n) {
    image.pixels.assign(static_cast<std::size_t>(3 * size * size), 0);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13 ^ n);
    batch.push_back(image);
  }
  return [encoder, batch] { must(encoder->encode(batch)); };
}

Encode captions(const char* folder, std::size_t tokens) {
  const TextEncoderFiles files = must(TextEncoderFiles::open(folder));
  OpenedTextEncoder opened = must(open_text_encoder(files, /*device=*/-1, /*threads=*/1));
  const std::shared_ptr<TextEncoder> encoder = std::move(opened.encoder);
  std::vector<std::int32_t> ids(kCaptions * tokens);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 2654435761U % 32000);
  return [encoder, ids] { must(encoder->encode(ids, kCaptions)); };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 4 ? argv[1] : "";
  if (what != "images" && what != "text") {
    std::fprintf(stderr, "usage: encode_bench images VAE SIZE | text DIR TOKENS\n");
    return 2;
  }
  const int size = std::atoi(argv[3]);
  const Encode encode =
      what == "images" ? images(argv[2], size) : captions(argv[2], static_cast<std::size_t>(size));
  for (std::string line; std::getline(std::cin, line);) {
    const double begin = processor_seconds();
    for (int n = std::atoi(line.c_str()); n > 0; --n) encode();
    std::printf("%f\n", processor_seconds() - begin);
    std::fflush(stdout);
  }
}
