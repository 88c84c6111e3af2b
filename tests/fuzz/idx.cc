// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/temp_folder.h"
#include "diffusion/formats/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace diffusion;

// Two files by the names that MNIST gives them, since labels are found by name.
struct Files {
  TempFolder folder;
  MemoryFile images;
  MemoryFile labels;
  std::string images_path = folder / "images-idx3-ubyte";
  std::string labels_path = folder / "labels-idx1-ubyte";
  bool has_labels = false;
  Files() { std::filesystem::create_symlink(images.path(), images_path); }

  void set_labels(std::string_view bytes, bool present) {
    labels.set(bytes);
    if (present == has_labels) return;
    has_labels = present;
    if (present) {
      std::filesystem::create_symlink(labels.path(), labels_path);
    } else {
      std::filesystem::remove(labels_path);
    }
  }
};

}  // namespace

// The length of the labels file in two bytes (0: there is none), the labels
// file, the images file.
Verdict idx(std::string_view input) {
  if (input.size() < 2) return Verdict::kRefused;
  static Files files;
  const std::size_t label_bytes = std::size_t{static_cast<unsigned char>(input[0])} |
                                  std::size_t{static_cast<unsigned char>(input[1])} << 8;
  input.remove_prefix(2);
  const std::string_view labels = input.substr(0, label_bytes);
  files.set_labels(labels, label_bytes > 0);
  files.images.set(input.substr(labels.size()));

  auto source = open_idx_source(files.images_path);
  if (!source) return Verdict::kRefused;
  const auto count = read_all(**source, [&](const SourceSample& sample) {
    check_image(sample.image.value(), 1);
    SKERRY_CHECK(sample.label.has_value() == (label_bytes > 0), "a label out of nothing, or lost");
  });
  return count ? Verdict::kAccepted : Verdict::kRefused;
}

}  // namespace skerry::fuzz
