// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/text.h"
#include "diffusion/formats/source.h"

namespace skerry::diffusion {
namespace {

class FolderSource final : public Source {
 public:
  FolderSource(std::string folder, std::vector<std::string> files,
               std::optional<CaptionTable> captions)
      : folder_(std::move(folder)), files_(std::move(files)), captions_(std::move(captions)) {}

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
    if (captions_ && sample.image) {
      ASSIGN_OR_RETURN(sample.caption, caption_of(relative));
    }
    return std::optional<SourceSample>(std::move(sample));
  }

  std::uint64_t expected_samples() const override { return files_.size(); }

 private:
  Result<std::string> caption_of(const std::string& image) const {
    for (const char* const extension : {".txt", ".caption"}) {
      const std::string name = std::filesystem::path(image).replace_extension(extension).string();
      const std::string path = (std::filesystem::path(folder_) / name).string();
      std::error_code error;
      if (!std::filesystem::is_regular_file(path, error)) continue;
      Result<std::string> caption = read_whole_file(path, kMaxCaptionBytes);
      if (caption) caption = clean_caption(*caption);
      if (!caption) return fail(caption.error().code, text(name, ": ", caption.error().message));
      if (!caption->empty()) return caption;
    }
    return captions_->of(image);
  }
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
  std::optional<CaptionTable> captions_;  // none: captions are not wanted
  std::size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Source>> open_folder_source(const std::string& folder,
                                                   std::vector<std::string> files,
                                                   const std::vector<std::string>& metadata,
                                                   CaptionChoice captions) {
  std::optional<CaptionTable> table;
  if (captions == CaptionChoice::kAuto) {
    ASSIGN_OR_RETURN(table, CaptionTable::read(folder, metadata, files));
  }
  return std::unique_ptr<Source>(
      std::make_unique<FolderSource>(folder, std::move(files), std::move(table)));
}

}  // namespace skerry::diffusion
