// SPDX-License-Identifier: Apache-2.0
// Captions that come with images: how they are written, and where they are
// found.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

// Where captions come from: files and fields beside the images, nowhere, or
// the name of the image's class.
enum class CaptionChoice { kAuto, kOff, kClass };

constexpr std::uint64_t kMaxCaptionBytes = 64U << 10;

// RETURNS: the caption in lower case, without spaces at its ends. Empty: there
// is no caption. diffusers' pipelines do the same to a prompt if bs4 is
// missing, so that training and sampling agree.
// ON FAILURE: kInvalid: not UTF-8, or longer than kMaxCaptionBytes.
Result<std::string> clean_caption(std::string_view written);

// RETURNS: whether a cleaned caption has the word left or right, which a
// mirrored image makes wrong.
bool says_side(std::string_view caption);

// The captions of metadata.jsonl files: each line is an object with
// `file_name`, relative to the file's folder, and `text`. Other fields are
// ignored.
class CaptionTable {
 public:
  // `files`: paths of metadata.jsonl files below `folder`. `images`: all images
  // below it, sorted.
  // ON FAILURE: kInvalid names the file and the line. It has no object or no
  // `file_name`, names a missing image, or is not UTF-8.
  static Result<CaptionTable> read(const std::string& folder, const std::vector<std::string>& files,
                                   const std::vector<std::string>& images);
  // RETURNS: the cleaned caption of an image, empty if it has none.
  std::string of(const std::string& image) const;

 private:
  std::map<std::string, std::string> captions_;
};

}  // namespace skerry::diffusion
