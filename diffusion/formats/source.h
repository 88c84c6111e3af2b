// SPDX-License-Identifier: Apache-2.0
// The sources of a dataset: images or latents, one sample after the other.
// - Images: a folder of images, IDX or CIFAR files, WebDataset tars.
// - Latents made of images beforehand: NumPy and safetensors files, WebDataset
//   tars.
//
// The order of samples depends on names alone, so the same input gives the same
// dataset.
//
// ON FAILURE: an unusable sample has its `problem` set, and reading continues.
// An error ends the reading: a truncated archive, a count that does not match.
// THREADS: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/caption.h"
#include "diffusion/formats/image.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {

struct SourceSample {
  std::string path;                  // for messages
  std::optional<Image> image;        // none, and no latent: see problem
  std::optional<Latent> latent;      // instead of an image
  std::string problem;               // why the sample is skipped
  std::optional<std::string> label;  // the class by name; none: unlabelled
  std::string caption;               // cleaned; empty: none
};

class Source {
 public:
  virtual ~Source() = default;
  virtual Result<std::optional<SourceSample>> next() = 0;       // none: the end
  virtual std::uint64_t expected_samples() const { return 0; }  // 0: unknown before the end
};

// Recognises the format. With kAuto, samples have the captions that lie beside
// them.
// ON FAILURE: kNotFound: no such path. kInvalid: it holds no readable file; the
// message says what was found and what is accepted.
Result<std::unique_ptr<Source>> open_source(const std::string& path, CaptionChoice captions);

// Images below a folder. The class is the first folder below it, none for
// images directly in it. With kAuto the caption is in a file of the same stem
// (.txt, else .caption), else in one of the `metadata` files (CaptionTable).
// REQUIRES: `files` are sorted.
Result<std::unique_ptr<Source>> open_folder_source(const std::string& folder,
                                                   std::vector<std::string> files,
                                                   const std::vector<std::string>& metadata,
                                                   CaptionChoice captions);
// An IDX file of images, plain or gzip. Labels come from the file beside it
// that MNIST's naming gives, if it exists.
Result<std::unique_ptr<Source>> open_idx_source(const std::string& images_path);
// CIFAR-10 or CIFAR-100 in their binary form, all of one kind. The label is the
// class. It has a name if the list of names that comes with the files lies
// beside them. CIFAR-100's coarse label is ignored.
// REQUIRES: at least one file.
Result<std::unique_ptr<Source>> open_cifar_source(std::vector<std::string> files);
// WebDataset: consecutive members that share the name up to the first dot are
// one sample. The label is the field `cls`, else "label" in `json`, else the
// member's folder, else none. With kAuto the caption is the field `txt`, else
// "caption" or "text" in `json`. A sample without an image must have a latent
// in its field `npy`.
Result<std::unique_ptr<Source>> open_tar_source(std::vector<std::string> tars,
                                                CaptionChoice captions);

// Files of latents below a folder, as latents.h reads them. NumPy's labels are
// in labels_path(), if that file exists; safetensors' labels are in `labels`.
// Without labels the class is the first folder below, as for images. A file
// that is no latents is an error and not skipped.
// REQUIRES: at least one file.
Result<std::unique_ptr<Source>> open_latent_source(const std::string& folder,
                                                   std::vector<std::string> files);

// Helpers of the sources.
std::string lower_extension(std::string_view name);  // "photo.JPG" → ".jpg"; none → ""
bool is_readable_image_name(std::string_view name);  // .jpg .jpeg .png .webp
bool is_unreadable_image_name(
    std::string_view name);  // an image by name, of an unsupported format: .gif .bmp …
bool is_tar_name(std::string_view name);      // .tar .tar.gz .tgz
bool is_latents_name(std::string_view name);  // .npy .safetensors
// RETURNS: the file of its labels: the last "latents" of the name becomes
// "labels". Empty if the name has none.
std::string labels_path(const std::string& latents);
bool is_cifar_name(
    std::string_view file_name);  // data_batch_N.bin, test_batch.bin, train.bin, test.bin
bool is_idx_images_name(std::string_view file_name);  // …images-idx3-ubyte[.gz], with - or .
Result<std::string> read_whole_file(const std::string& path, std::uint64_t limit_bytes);
constexpr std::uint64_t kMaxEncodedImageBytes = 256U << 20;

}  // namespace skerry::diffusion
