// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <filesystem>

#include "base/temp_folder.h"
#include "diffusion/formats/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/samples.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace diffusion;

// A file by each of the two names that tell the kinds apart.
struct Files {
  TempFolder folder;
  MemoryFile bytes;
  std::string ten = folder / "data_batch_1.bin", hundred = folder / "train.bin";
  Files() {
    for (const std::string& path : {ten, hundred})
      std::filesystem::create_symlink(bytes.path(), path);
  }
};

}  // namespace

// A byte that chooses the kind, and the file.
Verdict cifar(std::string_view input) {
  if (input.empty()) return Verdict::kRefused;
  static Files files;
  const bool is_ten = input[0] % 2 == 0;
  files.bytes.set(input.substr(1));
  auto source = open_cifar_source({is_ten ? files.ten : files.hundred});
  if (!source) return Verdict::kRefused;
  const auto count = read_all(**source, [&](const SourceSample& sample) {
    check_image(sample.image.value(), 3);
    SKERRY_CHECK(sample.image->width == 32 && sample.image->height == 32,
                 "an image of another size");
    const std::string& label = sample.label.value();
    unsigned number = 0;
    std::from_chars(label.data(), label.data() + label.size(), number);
    SKERRY_CHECK(number < (is_ten ? 10U : 100U), "a label of no class: ", label);
  });
  return count.value_or(0) > 0 ? Verdict::kAccepted : Verdict::kRefused;
}

}  // namespace skerry::fuzz
