// SPDX-License-Identifier: Apache-2.0
// The progress of long work. The working thread calls it at most about ten
// times a second.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace skerry::diffusion {

struct Progress {
  std::string_view stage;  // read, components, cluster, write, statistics, router
  std::uint64_t done = 0;
  std::uint64_t total = 0;  // 0: unknown
};
using ProgressFn = std::function<void(const Progress&)>;

}  // namespace skerry::diffusion
