// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/read_images.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "base/text.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

constexpr std::uint64_t kProgressEvery = 500;

std::optional<std::uint32_t> whole_number(const std::string& name) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  if (std::to_string(value) != name) return std::nullopt;  // "07" is a name, not seven
  return value;
}

int size_for(const Image& first, int asked) {
  if (asked > 0) return asked;
  const bool small_square = first.width == first.height && first.width <= kDefaultImageSize;
  return small_square && first.width >= kMinImageSize ? first.width : kDefaultImageSize;
}

void skip(ImageSet& set, SourceSample sample) {
  ++set.skipped;
  if (set.skipped_examples.size() < kMaxSkippedExamples) {
    set.skipped_examples.push_back({std::move(sample.path), std::move(sample.problem)});
  }
}

// The set as it grows. What the first sample is, images or latents, all are.
class Reading {
 public:
  Reading(ImageSet& set, const std::string& scratch_folder, int image_size,
          const LatentOptions& latents, ImageEncoder* encoder)
      : set_(set),
        scratch_folder_(scratch_folder),
        asked_(image_size),
        options_(latents),
        encoder_(encoder) {}

  Result<void> add(const SourceSample& sample) {
    if (encoder_ != nullptr) return encode(sample);
    if (size_ == 0) TRY(begin(sample));
    if (sample.latent.has_value() != set_.latents.has_value()) {
      return fail(ErrorCode::kInvalid,
                  text(sample.path, ": expected ", set_.latents ? "latents" : "images",
                       ", as before it, found ", set_.latents ? "an image" : "latents",
                       ": make a dataset of each"));
    }
    return sample.latent ? add_latent(*sample.latent, sample.path) : add_image(*sample.image);
  }
  Result<void> finish() { return encode_batch(); }
  int channels() const { return set_.latents ? channels_ : all_grey_ ? 1 : 3; }

 private:
  Result<void> encode(const SourceSample& sample) {
    if (sample.latent) {
      return fail(ErrorCode::kInvalid,
                  text(sample.path, ": expected images, which --vae encodes, found latents"));
    }
    if (image_size_ == 0) {
      image_size_ = size_for(*sample.image, asked_);
      set_.latents = encoder_->scaling();
    }
    batch_.push_back(centre_square(*sample.image, image_size_));
    paths_.push_back(sample.path);
    return batch_.size() == kEncodeBatch ? encode_batch() : Result<void>();
  }
  Result<void> encode_batch() {
    if (batch_.empty()) return {};
    ASSIGN_OR_RETURN(const std::vector<Latent> latents, encoder_->encode(batch_));
    if (size_ == 0) TRY(begin_latents(latents.front()));
    for (std::size_t i = 0; i < latents.size(); ++i) TRY(add_latent(latents[i], paths_[i]));
    batch_.clear();
    paths_.clear();
    return {};
  }
  Result<void> begin_latents(const Latent& first) {
    size_ = first.size;
    channels_ = first.channels;
    ASSIGN_OR_RETURN(set_.store, PixelStore::create_for_latents(scratch_folder_, channels_, size_));
    return {};
  }

  Result<void> begin(const SourceSample& sample) {
    if (!sample.latent) {
      if (options_.scaling || options_.scaled) {
        return fail(ErrorCode::kInvalid,
                    text(sample.path,
                         ": expected latents, which --latent-scale and its like are "
                         "for, found an image"));
      }
      size_ = size_for(*sample.image, asked_);
      ASSIGN_OR_RETURN(set_.store,
                       PixelStore::create(scratch_folder_, sample.image->channels, size_));
      return {};
    }
    if (options_.scaled && !options_.scaling) {
      return fail(ErrorCode::kInvalid,
                  "--latents-scaled needs --latent-scale, by which they were scaled, so that "
                  "decoding can undo it");
    }
    set_.latents = options_.scaling.value_or(LatentScaling{});
    TRY(validate(*set_.latents));
    if (asked_ > 0 && asked_ != sample.latent->size) {
      return fail(ErrorCode::kInvalid,
                  text("latents are not resized: leave --image-size out, expected ", asked_,
                       ", found ", sample.latent->size, " in ", sample.path));
    }
    return begin_latents(*sample.latent);
  }

  Result<void> add_image(const Image& image) {
    all_grey_ = all_grey_ && is_grey(image);
    return set_.store.append(centre_square(image, size_));
  }

  Result<void> add_latent(const Latent& latent, const std::string& path) {
    if (latent.channels != channels_ || latent.size != size_) {
      return fail(ErrorCode::kInvalid,
                  text(path, ": expected a latent of [", channels_, ',', size_, ',', size_,
                       "], as before it, found [", latent.channels, ',', latent.size, ',',
                       latent.size, "]: make a dataset of each shape"));
    }
    halves_.clear();
    for (const float value : latent.values) {
      if (!std::isfinite(value)) {
        return fail(ErrorCode::kInvalid,
                    text(path, ": expected finite numbers, found ", value, ": encode it again"));
      }
      const double scaled =
          options_.scaled ? value : (value - set_.latents->shift) * set_.latents->scale;
      halves_.push_back(to_half(static_cast<float>(scaled)));
      if (!std::isfinite(from_half(halves_.back()))) {
        return fail(ErrorCode::kInvalid,
                    text(path, ": expected numbers up to 65504, which 16 bits hold, found ", scaled,
                         ": choose a smaller --latent-scale, 1 ÷ the standard deviation"));
      }
    }
    return set_.store.append(halves_);
  }

  ImageSet& set_;
  const std::string& scratch_folder_;
  int asked_, size_ = 0, channels_ = 0;
  const LatentOptions& options_;
  ImageEncoder* encoder_;
  int image_size_ = 0;  // of what is encoded
  std::vector<Image> batch_;
  std::vector<std::string> paths_;
  bool all_grey_ = true;
  std::vector<std::uint16_t> halves_;
};

// Numbers captions in order of first use.
class CaptionNumbers {
 public:
  explicit CaptionNumbers(ImageSet& set) : set_(set) { set_.captions.emplace_back(); }
  void add(const std::string& caption) {
    if (caption.empty()) ++set_.uncaptioned;
    const auto [at, is_new] =
        numbers_.try_emplace(caption, static_cast<std::uint32_t>(set_.captions.size()));
    if (is_new) set_.captions.push_back(caption);
    set_.caption_of.push_back(at->second);
  }
  void finish() {
    if (set_.captions.size() > 1) return;
    set_.captions.clear();
    set_.caption_of.clear();
    set_.uncaptioned = 0;
  }

 private:
  ImageSet& set_;
  std::unordered_map<std::string, std::uint32_t> numbers_{{"", 0}};
};

Error nothing_read(const ImageSet& set) {
  if (set.skipped == 0) return fail(ErrorCode::kInvalid, "there is not one image in it");
  const SkippedImage& first = set.skipped_examples.front();
  return fail(ErrorCode::kInvalid,
              text("not one image could be used; ", set.skipped, " were skipped, the first, ",
                   first.path, ": ", first.reason));
}

}  // namespace

Classes number_classes(const std::vector<std::optional<std::string>>& labels) {
  std::set<std::string> distinct;
  for (const auto& label : labels) {
    if (label) distinct.insert(*label);
  }
  std::vector<std::string> names(distinct.begin(), distinct.end());
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = whole_number(name)) numbers.push_back(*number);
  }
  if (!names.empty() && numbers.size() == names.size()) {
    std::sort(numbers.begin(), numbers.end());
    const std::uint32_t largest = numbers.back();
    if (largest < 2 * numbers.size()) {
      numbers.clear();
      for (std::uint32_t i = 0; i <= largest; ++i) numbers.push_back(i);
    }
    names.clear();
    for (const std::uint32_t number : numbers) names.push_back(std::to_string(number));
  }
  std::map<std::string, std::int32_t> index;
  for (const std::string& name : names)
    index.emplace(name, static_cast<std::int32_t>(index.size()));
  Classes classes{std::move(names), {}};
  for (const auto& label : labels) classes.labels.push_back(label ? index.at(*label) : -1);
  return classes;
}

Result<ImageSet> read_images(Source& source, const std::string& scratch_folder, int image_size,
                             const LatentOptions& latents, CaptionChoice captions,
                             ImageEncoder* encoder, const ProgressFn& progress) {
  ImageSet set;
  CaptionNumbers numbers(set);
  Reading reading(set, scratch_folder, image_size, latents, encoder);
  const char* const stage = encoder == nullptr ? "read" : "encode";
  const std::uint64_t every = encoder == nullptr ? kProgressEvery : kEncodeBatch;
  std::vector<std::optional<std::string>> labels;
  std::uint64_t seen = 0;
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<SourceSample> sample, source.next());
    if (!sample) break;
    if (seen++ % every == 0) progress({stage, seen - 1, source.expected_samples()});
    if (!sample->image && !sample->latent) {
      skip(set, std::move(*sample));
      continue;
    }
    TRY(reading.add(*sample));
    if (captions == CaptionChoice::kClass && sample->label) {
      ASSIGN_OR_RETURN(sample->caption, clean_caption(*sample->label));
    }
    numbers.add(sample->caption);
    labels.push_back(std::move(sample->label));
    set.places.push_back(static_cast<std::uint32_t>(seen - 1));
  }
  TRY(reading.finish());
  progress({stage, seen, seen});
  if (labels.empty()) return nothing_read(set);
  numbers.finish();
  ASSIGN_OR_RETURN(set.pixels, set.store.map(reading.channels()));
  Classes classes = number_classes(labels);
  set.classes = std::move(classes.names);
  set.labels = std::move(classes.labels);
  return set;
}

}  // namespace skerry::diffusion
