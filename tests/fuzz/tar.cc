// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "diffusion/formats/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace diffusion;

void check_sample(const SourceSample& sample) {
  SKERRY_CHECK(!sample.path.empty(), "a sample from nowhere");
  const bool usable = sample.image.has_value() || sample.latent.has_value();
  SKERRY_CHECK(usable == sample.problem.empty(), "neither an image nor why there is none, or both");
  SKERRY_CHECK(!sample.image || !sample.latent, "an image and a latent");
  if (sample.image) check_image(*sample.image, 3);
  if (sample.latent) check_latent(*sample.latent);
}

// Puts the right sum into every header, which hardly any mutation would
// achieve. Archives under gzip stay as they are.
std::string with_sums(std::string_view input) {
  constexpr std::size_t kBlock = 512;
  constexpr std::size_t kSizeField = 124;
  constexpr std::size_t kSumField = 148;
  constexpr std::size_t kSumBytes = 8;
  std::string tar(input);
  for (std::size_t at = 0;
       at + kBlock <= tar.size() && tar[at] != 0 && !tar.starts_with("\x1f\x8b");) {
    tar.replace(at + kSumField, kSumBytes, kSumBytes, ' ');
    unsigned sum = 0;
    for (std::size_t i = at; i < at + kBlock; ++i) sum += static_cast<unsigned char>(tar[i]);
    char digits[kSumBytes];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    tar.replace(at + kSumField, kSumBytes - 1, digits, kSumBytes - 1);
    const std::size_t size = std::strtoull(tar.substr(at + kSizeField, 12).c_str(), nullptr, 8);
    if (size > tar.size()) break;
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
  return tar;
}

}  // namespace

Verdict tar(std::string_view input) {
  static MemoryFile file;
  file.set(with_sums(input));
  auto source = open_tar_source({file.path()}, CaptionChoice::kAuto);
  SKERRY_CHECK(source.has_value(), "opening a tar reads nothing");
  bool any = false;
  const auto count = read_all(**source, [&](const SourceSample& sample) {
    check_sample(sample);
    any = any || sample.image.has_value() || sample.latent.has_value();
  });
  return count && any ? Verdict::kAccepted : Verdict::kRefused;
}

}  // namespace skerry::fuzz
