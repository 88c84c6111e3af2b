// SPDX-License-Identifier: Apache-2.0
// From a source to a set of equal squares with class numbers: decodes, resizes,
// counts what had to be skipped. Latents are neither resized nor skipped: they
// are scaled and checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
  std::optional<LatentScaling> latents;  // of latents: how they were scaled
  std::vector<std::int32_t> labels;      // index into classes; −1: unlabelled
  std::vector<std::string> classes;
  std::vector<std::uint32_t> places;  // of each image among all samples of the source
  std::uint64_t skipped = 0;
  std::vector<SkippedImage> skipped_examples;  // the first kMaxSkippedExamples
};
constexpr std::size_t kMaxSkippedExamples = 20;
constexpr int kMinImageSize = 4;
constexpr int kMaxImageSize = 1024;
constexpr int kDefaultImageSize = 64;

struct LatentOptions {
  std::optional<LatentScaling> scaling;  // none: latents are trained on as they are
  bool scaled = false;                   // they are scaled so already
};

// Of latents every one must be as large as the first, and as `image_size` if
// that is not 0; kInvalid names one that is not, that is not finite, or that is
// beyond what 16 bits hold. Of images `image_size` 0: the size of the first
// image if that is a square of at most kDefaultImageSize, else
// kDefaultImageSize. kInvalid where not one image could be used; its message
// names the first that could not, and why.
Result<ImageSet> read_images(Source& source, const std::string& scratch_folder, int image_size,
                             const LatentOptions& latents, const ProgressFn& progress);

// Class numbers for label names. Whole numbers that fill their range keep their
// value ("0" … "9"), others are sorted (numerically if all are numbers). Labels
// with no value become −1.
struct Classes {
  std::vector<std::string> names;
  std::vector<std::int32_t> labels;
};
Classes number_classes(const std::vector<std::optional<std::string>>& labels);

}  // namespace skerry::diffusion
