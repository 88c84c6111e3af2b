#include <charconv>
#include <filesystem>

#include "base/check.h"
#include "base/temp_folder.h"
#include "diffusion/data/source.h"
#include "tests/fuzz/memory_file.h"
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
    for (const std::string& path : {ten, hundred}) std::filesystem::create_symlink(bytes.path(), path);
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
  std::uint64_t count = 0;
  for (;; ++count) {
    const auto sample = (*source)->next();
    if (!sample) return Verdict::kRefused;
    if (!*sample) break;
    const Image& image = (*sample)->image.value();
    SKERRY_CHECK(image.width == 32 && image.height == 32 && image.pixels.size() == 3072,
                 "pixels do not fill the image");
    const std::string& label = (*sample)->label.value();
    unsigned number = 0;
    std::from_chars(label.data(), label.data() + label.size(), number);
    SKERRY_CHECK(number < (is_ten ? 10U : 100U), "a label of no class: ", label);
  }
  SKERRY_CHECK(count == (*source)->expected_samples(), count, " samples, announced were ",
               (*source)->expected_samples());
  return count == 0 ? Verdict::kRefused : Verdict::kAccepted;
}

}  // namespace skerry::fuzz
