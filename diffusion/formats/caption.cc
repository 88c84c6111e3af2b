// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/caption.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;

bool is_utf8(std::string_view bytes) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto size = static_cast<std::int32_t>(bytes.size());
  for (std::int32_t at = 0; at < size;) {
    UChar32 character = 0;
    U8_NEXT(data, at, size, character);
    if (character < 0) return false;
  }
  return true;
}

// As Python's str.isspace().
bool is_space(UChar32 character) {
  return u_isUWhiteSpace(character) || (character >= 0x1c && character <= 0x1f);
}

// Reads one metadata.jsonl.
class Reader {
 public:
  Reader(std::string folder, std::string file, const std::vector<std::string>& images)
      : folder_(std::move(folder)), file_(std::move(file)), images_(images) {}

  Result<void> read_into(std::map<std::string, std::string>& captions) {
    std::ifstream in(fs::path(folder_) / file_, std::ios::binary);
    for (std::string line; std::getline(in, line);) {
      ++number_;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      TRY(take(line, captions));
    }
    if (!in.eof()) return fail(ErrorCode::kIo, text(file_, ": cannot read it"));
    return {};
  }

 private:
  Error wrong(const std::string& what) const {
    return fail(ErrorCode::kInvalid, text(file_, " line ", number_, ": ", what));
  }

  Result<void> take(const std::string& line, std::map<std::string, std::string>& captions) const {
    if (!is_utf8(line)) return wrong("expected UTF-8, found other bytes");
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object())
      return wrong("expected an object such as {\"file_name\": \"a.png\", \"text\": \"a bird\"}");
    const auto name = json.find("file_name");
    if (name == json.end() || !name->is_string())
      return wrong("expected a file_name, which says whose line this is");
    const std::string image =
        (fs::path(file_).parent_path() / name->get<std::string>()).lexically_normal().string();
    if (!std::ranges::binary_search(images_, image))
      return wrong(text("it names ", image, ", which is no image of this folder"));
    const auto words = json.find("text");
    if (words == json.end() || words->is_null()) return {};
    if (!words->is_string()) return wrong("expected text to be a string");
    Result<std::string> caption = clean_caption(words->get<std::string>());
    if (!caption) return wrong(caption.error().message);
    if (!caption->empty()) captions[image] = std::move(*caption);
    return {};
  }

  std::string folder_, file_;
  const std::vector<std::string>& images_;
  std::uint64_t number_ = 0;
};

}  // namespace

Result<std::string> clean_caption(std::string_view written) {
  if (written.size() > kMaxCaptionBytes) {
    return fail(ErrorCode::kInvalid,
                text("expected a caption of at most ", human_bytes(kMaxCaptionBytes), ", found ",
                     human_bytes(written.size())));
  }
  if (!is_utf8(written))
    return fail(ErrorCode::kInvalid, "expected a caption in UTF-8, found other bytes");
  const icu::StringPiece piece(written.data(), static_cast<std::int32_t>(written.size()));
  icu::UnicodeString words = icu::UnicodeString::fromUTF8(piece);
  words.toLower(icu::Locale::getRoot());
  std::int32_t begin = 0, end = words.length();
  while (begin < end && is_space(words.char32At(begin))) begin = words.moveIndex32(begin, 1);
  while (begin < end && is_space(words.char32At(words.moveIndex32(end, -1))))
    end = words.moveIndex32(end, -1);
  std::string clean;
  words.tempSubStringBetween(begin, end).toUTF8String(clean);
  return clean;
}

bool says_side(std::string_view caption) {
  const auto is_letter = [&](std::size_t at) {
    return at < caption.size() && (std::isalpha(static_cast<unsigned char>(caption[at])) != 0);
  };
  for (const std::string_view side : {"left", "right"}) {
    for (std::size_t at = caption.find(side); at != std::string_view::npos;
         at = caption.find(side, at + 1)) {
      if (!is_letter(at - 1) && !is_letter(at + side.size())) return true;
    }
  }
  return false;
}

Result<CaptionTable> CaptionTable::read(const std::string& folder,
                                        const std::vector<std::string>& files,
                                        const std::vector<std::string>& images) {
  CaptionTable table;
  for (const std::string& file : files)
    TRY(Reader(folder, file, images).read_into(table.captions_));
  return table;
}

std::string CaptionTable::of(const std::string& image) const {
  const auto found = captions_.find(image);
  return found == captions_.end() ? "" : found->second;
}

}  // namespace skerry::diffusion
