#include "diffusion/data/read_images.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/text.h"

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

Error nothing_read(const ImageSet& set) {
  if (set.skipped == 0) return fail(ErrorCode::kInvalid, "there is not one image in it");
  const SkippedImage& first = set.skipped_examples.front();
  return fail(ErrorCode::kInvalid, text("not one image could be used; ", set.skipped,
                                        " were skipped, the first, ", first.path, ": ", first.reason));
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
  for (const std::string& name : names) index.emplace(name, static_cast<std::int32_t>(index.size()));
  Classes classes{std::move(names), {}};
  for (const auto& label : labels) classes.labels.push_back(label ? index.at(*label) : -1);
  return classes;
}

Result<ImageSet> read_images(Source& source, const std::string& scratch_folder, int image_size,
                             const ProgressFn& progress) {
  ImageSet set;
  std::vector<std::optional<std::string>> labels;
  bool all_grey = true;
  int size = 0;
  std::uint64_t seen = 0;
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<SourceSample> sample, source.next());
    if (!sample) break;
    if (seen++ % kProgressEvery == 0) progress({"read", seen - 1, source.expected_samples()});
    if (!sample->image) {
      skip(set, std::move(*sample));
      continue;
    }
    if (size == 0) {
      size = size_for(*sample->image, image_size);
      ASSIGN_OR_RETURN(set.store, PixelStore::create(scratch_folder, sample->image->channels, size));
    }
    all_grey = all_grey && is_grey(*sample->image);
    TRY(set.store.append(centre_square(*sample->image, size)));
    labels.push_back(std::move(sample->label));
    set.places.push_back(static_cast<std::uint32_t>(seen - 1));
  }
  progress({"read", seen, seen});
  if (labels.empty()) return nothing_read(set);
  ASSIGN_OR_RETURN(set.pixels, set.store.map(all_grey ? 1 : 3));
  Classes classes = number_classes(labels);
  set.classes = std::move(classes.names);
  set.labels = std::move(classes.labels);
  return set;
}

}  // namespace skerry::diffusion
