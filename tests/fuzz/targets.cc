// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>

namespace skerry::fuzz {
namespace {

constexpr std::array kTargets{
    Target{"control", "numbers_not_checked", control, Holds::kMessageAfterByte},
    Target{"engine", "progress_not_finite", engine, Holds::kMessageAfterByte},
    Target{"token", "secret_of_any_size", token, Holds::kMessageAfterByte},
    Target{"certificate", "foreign_id_certified", certificate, Holds::kMessageAfterByte},
    Target{"record", "numbers_not_checked", record, Holds::kMessageAfterByte},
    Target{"manifest", "positions_with_holes", manifest, Holds::kMessage},
    Target{"safetensors", "data_left_over", safetensors},
    Target{"idx", "labels_not_counted", idx},
    Target{"cifar", "label_of_no_class", cifar},
    Target{"npy", "numbers_left_over", npy},
    Target{"tar", "unexplained_sample", tar},
    Target{"image", "broken_jpeg_accepted", image},
    Target{"run_file", "range_without_end", run_file},
    Target{"context", "key_not_checked", context}};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* find_target(std::string_view name) {
  const auto found = std::find_if(kTargets.begin(), kTargets.end(),
                                  [&](const Target& t) { return t.name == name; });
  return found == kTargets.end() ? nullptr : &*found;
}

}  // namespace skerry::fuzz
