// SPDX-License-Identifier: Apache-2.0
// Reads a source into a set of equal squares with class numbers: decodes,
// resizes, counts skipped samples. Latents are scaled and checked, never
// resized or skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diffusion/formats/image_encoder.h"
#include "diffusion/formats/pixels.h"
#include "diffusion/formats/progress.h"
#include "diffusion/formats/source.h"

namespace skerry::diffusion {

struct SkippedImage {
  std::string path;
  std::string reason;
};

struct ImageSet {
  PixelStore store;
  PixelView pixels;                      // valid while `store` lives
  std::optional<LatentScaling> latents;  // of latents: their scaling
  std::vector<std::int32_t> labels;      // index into classes; −1: unlabelled
  std::vector<std::string> classes;
  // Of each image, an index into `captions`. captions[0] is empty: the null
  // caption of images without one. Others are distinct, in order of first use.
  // Both are empty if no image has one.
  std::vector<std::uint32_t> caption_of;
  std::vector<std::string> captions;
  std::uint64_t uncaptioned = 0;
  std::vector<std::uint32_t> places;  // of each image among all samples of the source
  std::uint64_t skipped = 0;
  std::vector<SkippedImage> skipped_examples;  // the first kMaxSkippedExamples
};
constexpr std::size_t kMaxSkippedExamples = 20;
constexpr int kMinImageSize = 4;
constexpr int kMaxImageSize = 1024;
constexpr int kDefaultImageSize = 64;

struct LatentOptions {
  std::optional<LatentScaling> scaling;  // none: latents stay unscaled
  bool scaled = false;                   // they have this scaling already
};

// Latents: every one must be as large as the first, and as `image_size` if that
// is not 0.
// Images: `image_size` 0 means the size of the first image, if that is a square
// of at most kDefaultImageSize. Otherwise it means kDefaultImageSize.
// ON FAILURE: kInvalid names the first bad latent: of another size, not finite,
// or beyond the range of 16 bits.
// If no image is usable, kInvalid names the first one and why.
// With kClass the caption is the name of the class.
// With an encoder, images become latents in batches of kEncodeBatch, by which
// the latents' low bits may differ; latents in the source are kInvalid.
// `encoder` may be null.
constexpr std::size_t kEncodeBatch = 16;
Result<ImageSet> read_images(Source& source, const std::string& scratch_folder, int image_size,
                             const LatentOptions& latents, CaptionChoice captions,
                             ImageEncoder* encoder, const ProgressFn& progress);

// Maps label names to class numbers. Whole numbers that fill their range keep
// their value ("0" … "9"). Others are sorted, numerically if all are numbers.
// Labels without a value become −1.
struct Classes {
  std::vector<std::string> names;
  std::vector<std::int32_t> labels;
};
Classes number_classes(const std::vector<std::optional<std::string>>& labels);

}  // namespace skerry::diffusion
