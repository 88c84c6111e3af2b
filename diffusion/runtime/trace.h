// SPDX-License-Identifier: Apache-2.0
// Records training steps, operator by operator, as a trace for a viewer
// (ui.perfetto.dev, chrome://tracing). It shows the phases of speed.h, under
// them LibTorch's operators, and on a card its kernels. Does not include
// LibTorch.
// THREADS: the thread that trains makes, feeds and writes it. Only one may
// live, and none beside a PhaseClock or a MemoryMeter.
#pragma once

#include <string>

#include "base/result.h"

namespace skerry::diffusion {

class Trace {
 public:
  // Starts to record. `on_card`: records the card's work, too.
  // ON FAILURE: kInvalid, here or at the end, if this LibTorch was built
  // without its profiler.
  static Result<Trace> begin(bool on_card);
  Trace(Trace&& other) noexcept;
  Trace& operator=(Trace&&) = delete;
  ~Trace();  // drops an unwritten trace

  // Ends the trace, and writes it as Chrome's JSON.
  // REQUIRES: not yet written.
  // ON FAILURE: kIo if the file cannot be written; an older one is then gone.
  Result<void> write(const std::string& path);

 private:
  Trace() = default;
  bool records_ = true;
};

}  // namespace skerry::diffusion
