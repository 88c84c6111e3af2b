// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "diffusion/formats/source.h"

namespace skerry::diffusion {
namespace {

class FolderSource final : public Source {
 public:
  FolderSource(std::string folder, std::vector<std::string> files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  Result<std::optional<SourceSample>> next() override {
    if (next_ == files_.size()) return std::optional<SourceSample>();
    const std::string& relative = files_[next_++];
    SourceSample sample{.path = relative};
    const std::size_t slash = relative.find('/');
    if (slash != std::string::npos) sample.label = relative.substr(0, slash);
    if (auto image = decode_file(relative); image.has_value()) {
      sample.image = std::move(*image);
    } else {
      sample.problem = image.error().message;
    }
    return std::optional<SourceSample>(std::move(sample));
  }

  std::uint64_t expected_samples() const override { return files_.size(); }

 private:
  Result<Image> decode_file(const std::string& relative) const {
    if (is_unreadable_image_name(relative))
      return fail(ErrorCode::kInvalid, "only JPEG, PNG and WebP images are read");
    ASSIGN_OR_RETURN(const std::string bytes,
                     read_whole_file((std::filesystem::path(folder_) / relative).string(),
                                     kMaxEncodedImageBytes));
    return decode_image(bytes);
  }

  std::string folder_;
  std::vector<std::string> files_;
  std::size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Source>> open_folder_source(const std::string& folder,
                                                   std::vector<std::string> files) {
  return std::unique_ptr<Source>(std::make_unique<FolderSource>(folder, std::move(files)));
}

}  // namespace skerry::diffusion
