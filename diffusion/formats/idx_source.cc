// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <array>
#include <filesystem>

#include "base/text.h"
#include "diffusion/formats/source.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kImagesMagic = 0x00000803;  // unsigned bytes, three dimensions
constexpr std::uint32_t kLabelsMagic = 0x00000801;  // unsigned bytes, one dimension

// A plain or gzip file read from front to back. Every read is whole or an
// error.
class GzReader {
 public:
  static Result<GzReader> open(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) return fail(ErrorCode::kIo, text(path, ": cannot be opened"));
    gzbuffer(file, 1U << 16);
    return GzReader(path, file);
  }

  Result<void> read(void* out, std::uint64_t bytes) {
    const int got = gzread(file_.get(), out, static_cast<unsigned>(bytes));
    if (got >= 0 && static_cast<std::uint64_t>(got) == bytes) return {};
    int code = Z_OK;
    const char* why = gzerror(file_.get(), &code);
    const bool corrupt = code != Z_OK && code != Z_BUF_ERROR;
    return fail(ErrorCode::kCorrupt, text(path_, ": ", corrupt ? why : "the file is truncated"));
  }

  Result<std::uint32_t> big_endian() {
    std::array<unsigned char, 4> b{};
    TRY(read(b.data(), b.size()));
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }

  // Also reads the gzip checksum, which comes last.
  Result<void> expect_end() {
    char extra = 0;
    const int got = gzread(file_.get(), &extra, 1);
    if (got == 0) return {};
    if (got > 0) return fail(ErrorCode::kCorrupt, text(path_, ": more bytes than its header says"));
    int code = Z_OK;
    return fail(ErrorCode::kCorrupt, text(path_, ": ", gzerror(file_.get(), &code)));
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  GzReader(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

Result<std::vector<std::uint8_t>> read_labels(const std::string& path) {
  ASSIGN_OR_RETURN(GzReader in, GzReader::open(path));
  ASSIGN_OR_RETURN(const std::uint32_t magic, in.big_endian());
  if (magic != kLabelsMagic)
    return fail(ErrorCode::kCorrupt, text(path, ": not an IDX file of labels"));
  ASSIGN_OR_RETURN(const std::uint32_t count, in.big_endian());
  std::vector<std::uint8_t> labels;
  constexpr std::size_t kStep = 1U
                                << 20;  // grows with what is there, not with what the header claims
  while (labels.size() < count) {
    const std::size_t step = std::min<std::size_t>(kStep, count - labels.size());
    labels.resize(labels.size() + step);
    TRY(in.read(labels.data() + labels.size() - step, step));
  }
  TRY(in.expect_end());
  return labels;
}

// The labels' file by MNIST's naming: images → labels, idx3 → idx1, with or
// without .gz. Empty if there is none.
std::string labels_beside(const std::string& images_path) {
  const fs::path path(images_path);
  std::string name = path.filename().string();
  const std::size_t images = name.rfind("images");
  if (images == std::string::npos) return "";
  name.replace(images, 6, "labels");
  if (const std::size_t idx = name.rfind("idx3"); idx != std::string::npos)
    name.replace(idx, 4, "idx1");
  std::string other = name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name + ".gz";
  for (const std::string& candidate : {name, other}) {
    const fs::path labels = path.parent_path() / candidate;
    if (fs::exists(labels)) return labels.string();
  }
  return "";
}

class IdxSource final : public Source {
 public:
  IdxSource(std::string path, GzReader reader, std::uint32_t count, int height, int width,
            std::optional<std::vector<std::uint8_t>> labels)
      : path_(std::move(path)),
        reader_(std::move(reader)),
        count_(count),
        height_(height),
        width_(width),
        labels_(std::move(labels)) {}

  Result<std::optional<SourceSample>> next() override {
    if (next_ == count_) {
      TRY(reader_.expect_end());
      return std::optional<SourceSample>();
    }
    Image image{width_, height_, 1, {}};
    image.pixels.resize(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_));
    TRY(reader_.read(image.pixels.data(), image.pixels.size()));
    SourceSample sample{.path = text(path_, '[', next_, ']'), .image = std::move(image)};
    if (labels_) sample.label = std::to_string((*labels_)[next_]);
    ++next_;
    return std::optional<SourceSample>(std::move(sample));
  }

  std::uint64_t expected_samples() const override { return count_; }

 private:
  std::string path_;
  GzReader reader_;
  std::uint32_t count_;
  int height_;
  int width_;
  std::optional<std::vector<std::uint8_t>> labels_;
  std::uint32_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Source>> open_idx_source(const std::string& images_path) {
  ASSIGN_OR_RETURN(GzReader in, GzReader::open(images_path));
  ASSIGN_OR_RETURN(const std::uint32_t magic, in.big_endian());
  if (magic != kImagesMagic) {
    return fail(
        ErrorCode::kInvalid,
        text(images_path, ": not an IDX file of images (unsigned bytes, three dimensions)"));
  }
  ASSIGN_OR_RETURN(const std::uint32_t count, in.big_endian());
  ASSIGN_OR_RETURN(const std::uint32_t height, in.big_endian());
  ASSIGN_OR_RETURN(const std::uint32_t width, in.big_endian());
  if (height == 0 || width == 0 || height > 16384 || width > 16384) {
    return fail(ErrorCode::kCorrupt,
                text(images_path, ": images of ", height, "x", width, " pixels"));
  }
  std::optional<std::vector<std::uint8_t>> labels;
  if (const std::string path = labels_beside(images_path); !path.empty()) {
    ASSIGN_OR_RETURN(labels, read_labels(path));
    if (labels->size() != count) {
      return fail(ErrorCode::kInvalid, text(images_path, " holds ", count, " images, but ", path,
                                            " holds ", labels->size(), " labels"));
    }
  }
  return std::unique_ptr<Source>(
      std::make_unique<IdxSource>(images_path, std::move(in), count, static_cast<int>(height),
                                  static_cast<int>(width), std::move(labels)));
}

}  // namespace skerry::diffusion
