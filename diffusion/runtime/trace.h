// SPDX-License-Identifier: Apache-2.0
// What training steps do, operator by operator, as a trace for a viewer
// (ui.perfetto.dev, chrome://tracing): the phases of speed.h, under them
// LibTorch's operators, and on a card its kernels. No LibTorch shows here.
// Thread rule: made, fed and written on the thread that trains. One at a time,
// and none beside a PhaseClock or a MemoryMeter.
#pragma once

#include <string>

#include "base/result.h"

namespace skerry::diffusion {

class Trace {
 public:
  // Records from here on. `on_card`: what a card does, too. kInvalid, here or
  // at the end, where this LibTorch was built without its profiler.
  static Result<Trace> begin(bool on_card);
  Trace(Trace&& other) noexcept;
  Trace& operator=(Trace&&) = delete;
  ~Trace();  // forgets what was not written

  // Ends it, and writes it as Chrome's JSON. kIo where the file cannot be
  // written; an older one is gone then. REQUIRES: not yet written.
  Result<void> write(const std::string& path);

 private:
  Trace() = default;
  bool records_ = true;
};

}  // namespace skerry::diffusion
