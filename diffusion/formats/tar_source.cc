// SPDX-License-Identifier: Apache-2.0
#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "diffusion/formats/source.h"

namespace skerry::diffusion {
namespace {

constexpr std::uint64_t kMaxFieldBytes = 1U << 20;  // of a field that is neither image nor latent
// Of the largest latent, in doubles, and its header.
constexpr std::uint64_t kMaxLatentBytes =
    8 * kMaxLatentChannels * kMaxLatentSize * kMaxLatentSize + (64U << 10);

struct Member {
  std::string key;    // folder and name up to the first dot of the name
  std::string field;  // the rest, lower case, without the dot
  std::string path;
  std::uint64_t bytes = 0;
};

std::optional<Member> split_name(std::string path) {
  while (path.starts_with("./")) path.erase(0, 2);
  const std::size_t slash = path.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', base);
  if (dot == std::string::npos || dot == base) return std::nullopt;  // no field, or hidden
  std::string field = path.substr(dot + 1);
  for (char& c : field) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return Member{path.substr(0, dot), std::move(field), path};
}

// A field may carry a prefix ("0.jpg" of "name.0.jpg"): its last part names its
// type.
bool is_image_field(const std::string& field) { return is_readable_image_name("." + field); }
bool is_latent_field(const std::string& field) { return lower_extension("." + field) == ".npy"; }

std::string trimmed(const std::string& value) {
  const auto first = value.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return value.substr(first, value.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<std::string> label_in(const nlohmann::json& json) {
  const auto found = json.find("label");
  if (found == json.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_integer()) return std::to_string(found->get<std::int64_t>());
  return std::nullopt;
}

std::string caption_in(const nlohmann::json& json) {
  for (const char* const key : {"caption", "text"}) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

std::optional<std::string> folder_of(const std::string& key) {
  const std::size_t slash = key.rfind('/');
  if (slash == std::string::npos || slash == 0) return std::nullopt;
  const std::size_t before = key.rfind('/', slash - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return key.substr(begin, slash - begin);
}

Result<Latent> latent_in(const std::string& npy) {
  ASSIGN_OR_RETURN(const NumberArray array, parse_npy_array(npy));
  ASSIGN_OR_RETURN(const LatentBlock block, latents_of(array));
  if (block.count == 1) return block.at(0);
  return fail(ErrorCode::kInvalid,
              text("expected one latent [C,S,S] in a sample, found ", block.count));
}

class TarReader {
 public:
  static Result<TarReader> open(const std::string& path) {
    TarReader reader(path);
    archive* handle = reader.archive_.get();
    archive_read_support_format_tar(handle);
    archive_read_support_filter_gzip(handle);
    if (archive_read_open_filename(handle, path.c_str(), 1U << 16) != ARCHIVE_OK)
      return reader.failure();
    return reader;
  }

  // The next regular file whose name has a field.
  Result<std::optional<Member>> next() {
    archive_entry* entry = nullptr;
    for (;;) {
      const int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) return std::optional<Member>();
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return failure();
      const char* name = archive_entry_pathname(entry);
      if (archive_entry_filetype(entry) != AE_IFREG || name == nullptr) continue;
      std::optional<Member> member = split_name(name);
      if (!member) continue;
      member->bytes =
          static_cast<std::uint64_t>(std::max<la_int64_t>(0, archive_entry_size(entry)));
      return member;
    }
  }

  Result<std::string> read(const Member& member) {
    std::string bytes(member.bytes, '\0');
    std::size_t have = 0;
    while (have < bytes.size()) {
      const la_ssize_t got =
          archive_read_data(archive_.get(), bytes.data() + have, bytes.size() - have);
      if (got < 0) return failure();
      if (got == 0)
        return fail(ErrorCode::kCorrupt,
                    text(path_, ": the archive is truncated in ", member.path));
      have += static_cast<std::size_t>(got);
    }
    return bytes;
  }

 private:
  struct Free {
    void operator()(archive* handle) const { archive_read_free(handle); }
  };
  explicit TarReader(std::string path) : path_(std::move(path)), archive_(archive_read_new()) {}
  Error failure() const {
    const char* why = archive_error_string(archive_.get());
    return fail(ErrorCode::kCorrupt, text(path_, ": ", why == nullptr ? "not a tar archive" : why));
  }
  std::string path_;
  std::unique_ptr<archive, Free> archive_;
};

// One sample whose members are still being read.
struct Gathering {
  std::string key;
  std::string path;
  std::vector<std::string> fields;
  std::optional<Image> image;
  std::string problem;
  bool has_image_field = false;
  std::optional<Result<Latent>> latent;  // of the field .npy, where no image came before it
  std::optional<std::string> cls;
  std::optional<std::string> json_label;
  std::string text, json_caption;  // as they are written

  // An .npy beside an image may be anything; alone it is a latent.
  Result<SourceSample> finish() {
    SourceSample sample{.path = path};
    sample.label = cls ? cls : json_label ? json_label : folder_of(key);
    sample.image = std::move(image);
    if (!has_image_field && latent) {
      if (!*latent)
        return fail(latent->error().code, skerry::text(path, ": ", latent->error().message));
      sample.latent = std::move(**latent);
    } else if (!has_image_field) {
      problem = "no .jpg, .jpeg, .png, .webp or .npy among its fields:";
      for (const std::string& field : fields) problem += " ." + field;
    }
    sample.problem = std::move(problem);
    Result<std::string> caption = clean_caption(text);
    if (caption && caption->empty()) caption = clean_caption(json_caption);
    if (!caption)
      return fail(caption.error().code, skerry::text(path, ": ", caption.error().message));
    sample.caption = std::move(*caption);
    return sample;
  }
};

class TarSource final : public Source {
 public:
  TarSource(std::vector<std::string> tars, CaptionChoice captions)
      : tars_(std::move(tars)), captions_(captions) {}

  Result<std::optional<SourceSample>> next() override {
    while (reader_ || next_tar_ < tars_.size()) {
      if (!reader_) {
        ASSIGN_OR_RETURN(TarReader opened, TarReader::open(tars_[next_tar_++]));
        reader_.emplace(std::move(opened));
      }
      ASSIGN_OR_RETURN(std::optional<Member> member, reader_->next());
      std::optional<SourceSample> finished;
      if (gathering_ && (!member || member->key != gathering_->key)) {
        ASSIGN_OR_RETURN(finished, gathering_->finish());
        gathering_.reset();
      }
      if (member) {
        TRY(take(*member));
      } else {
        reader_.reset();
      }
      if (finished) return finished;
    }
    return std::optional<SourceSample>();
  }

 private:
  Result<void> take(const Member& member) {
    if (!gathering_) gathering_ = Gathering{.key = member.key, .path = member.path};
    gathering_->fields.push_back(member.field);
    if (is_image_field(member.field) && !gathering_->has_image_field) return take_image(member);
    if (is_latent_field(member.field) && !gathering_->has_image_field && !has_images_)
      return take_latent(member);
    const bool has_captions = captions_ == CaptionChoice::kAuto;
    const bool is_text = has_captions && member.field == "txt";
    const bool is_label = member.field == "cls" || member.field == "json";
    if (!(is_label || is_text) || member.bytes > kMaxFieldBytes) return {};
    ASSIGN_OR_RETURN(const std::string bytes, reader_->read(member));
    if (is_text) {
      gathering_->text = bytes;
    } else if (member.field == "json") {
      const auto json = nlohmann::json::parse(bytes, nullptr, false);
      if (!json.is_object()) return {};
      gathering_->json_label = label_in(json);
      if (has_captions) gathering_->json_caption = caption_in(json);
    } else if (std::string label = trimmed(bytes); !label.empty()) {
      gathering_->cls = std::move(label);
    }
    return {};
  }

  Result<void> take_image(const Member& member) {
    gathering_->has_image_field = has_images_ = true;
    gathering_->path = member.path;
    if (member.bytes > kMaxEncodedImageBytes) {
      gathering_->problem = text(human_bytes(member.bytes), " are too many for one image");
      return {};
    }
    ASSIGN_OR_RETURN(const std::string bytes, reader_->read(member));
    if (auto image = decode_image(bytes); image.has_value()) {
      gathering_->image = std::move(*image);
    } else {
      gathering_->problem = image.error().message;
    }
    return {};
  }

  Result<void> take_latent(const Member& member) {
    if (gathering_->latent) {
      gathering_->latent = fail(ErrorCode::kInvalid,
                                text("expected one .npy in a sample, found ", member.path, " too"));
      return {};
    }
    if (member.bytes > kMaxLatentBytes) {
      gathering_->latent =
          fail(ErrorCode::kInvalid,
               text(human_bytes(member.bytes), " are too many for one latent: a sample has one"));
      return {};
    }
    gathering_->path = member.path;
    ASSIGN_OR_RETURN(const std::string bytes, reader_->read(member));
    gathering_->latent = latent_in(bytes);
    return {};
  }

  std::vector<std::string> tars_;
  CaptionChoice captions_;
  std::size_t next_tar_ = 0;
  std::optional<TarReader> reader_;
  std::optional<Gathering> gathering_;
  bool has_images_ = false;  // then an .npy is no latent: a sample that lost its image is skipped
};

}  // namespace

Result<std::unique_ptr<Source>> open_tar_source(std::vector<std::string> tars,
                                                CaptionChoice captions) {
  return std::unique_ptr<Source>(std::make_unique<TarSource>(std::move(tars), captions));
}

}  // namespace skerry::diffusion
