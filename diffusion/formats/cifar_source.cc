// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "diffusion/formats/source.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 32;
constexpr std::size_t kPlane = std::size_t{kSide} * kSide;
constexpr std::size_t kChannels = 3;

// A record is the labels, the finest last, and three planes of pixels.
struct Layout {
  std::string_view name;
  std::size_t labels;
  std::size_t classes;
  std::string_view class_names;  // the file beside that lists them
  std::size_t bytes() const { return labels + kChannels * kPlane; }
};
constexpr Layout kCifar10{"CIFAR-10", 1, 10, "batches.meta.txt"};
constexpr Layout kCifar100{"CIFAR-100", 2, 100, "fine_label_names.txt"};

const Layout& layout_of(const std::string& path) {
  return fs::path(path).filename().string().find("batch") != std::string::npos ? kCifar10
                                                                               : kCifar100;
}

// A name a line; empty where the file is not there or lists too few.
std::vector<std::string> class_names(const fs::path& folder, const Layout& layout) {
  std::ifstream in(folder / layout.class_names);
  std::vector<std::string> names;
  for (std::string line; names.size() < layout.classes && std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(std::move(line));
  }
  if (names.size() < layout.classes) names.clear();
  return names;
}

class CifarSource final : public Source {
 public:
  CifarSource(std::vector<std::string> files, const Layout& layout, std::uint64_t samples)
      : files_(std::move(files)),
        layout_(layout),
        samples_(samples),
        names_(class_names(fs::path(files_[0]).parent_path(), layout)) {}

  Result<std::optional<SourceSample>> next() override {
    std::string record(layout_.bytes(), '\0');
    while (!in_.is_open() || in_.peek() == std::ifstream::traits_type::eof()) {
      if (in_.bad()) return fail(ErrorCode::kIo, text(path_, ": cannot be read"));
      if (next_file_ == files_.size()) return std::optional<SourceSample>();
      path_ = files_[next_file_++];
      in_.close();
      in_.clear();
      in_.open(path_, std::ios::binary);
      if (!in_) return fail(ErrorCode::kIo, text(path_, ": cannot be opened"));
      row_ = 0;
    }
    in_.read(record.data(), static_cast<std::streamsize>(record.size()));
    if (!in_) return fail(ErrorCode::kCorrupt, text(path_, ": the file is truncated"));
    return sample_of(record);
  }

  std::uint64_t expected_samples() const override { return samples_; }

 private:
  Result<std::optional<SourceSample>> sample_of(const std::string& record) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(record.data());
    const std::size_t label = bytes[layout_.labels - 1];
    if (label >= layout_.classes) {
      return fail(ErrorCode::kCorrupt, text(path_, '[', row_, "]: label ", label, ", but ",
                                            layout_.name, " has ", layout_.classes, " classes"));
    }
    Image image{kSide, kSide, kChannels, {}};
    image.pixels.reserve(kChannels * kPlane);
    for (std::size_t i = 0; i < kPlane; ++i) {
      for (std::size_t c = 0; c < kChannels; ++c)
        image.pixels.push_back(bytes[layout_.labels + c * kPlane + i]);
    }
    SourceSample sample{.path = text(path_, '[', row_++, ']'), .image = std::move(image)};
    sample.label = names_.empty() ? std::to_string(label) : names_[label];
    return std::optional<SourceSample>(std::move(sample));
  }

  std::vector<std::string> files_;
  const Layout& layout_;
  std::uint64_t samples_;
  std::vector<std::string> names_;
  std::size_t next_file_ = 0;
  std::string path_;
  std::ifstream in_;
  std::uint64_t row_ = 0;
};

}  // namespace

Result<std::unique_ptr<Source>> open_cifar_source(std::vector<std::string> files) {
  const Layout& layout = layout_of(files.at(0));
  std::uint64_t samples = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(file, error);
    if (error) return fail(ErrorCode::kIo, text(file, ": ", error.message()));
    if (bytes % layout.bytes() != 0) {
      return fail(ErrorCode::kCorrupt,
                  text(file, ": expected a ", layout.name, " file, whole images of ",
                       layout.bytes(), " bytes; found ", bytes, " bytes"));
    }
    samples += bytes / layout.bytes();
  }
  return std::unique_ptr<Source>(std::make_unique<CifarSource>(std::move(files), layout, samples));
}

}  // namespace skerry::diffusion
