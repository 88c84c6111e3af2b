// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace skerry::diffusion {
namespace {

// The events that LibTorch's allocator reports to a profiler. It does not
// report the release of tensors that are older than the profiler.
struct Account : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*address*/, std::int64_t bytes, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device device) override {
    if (device.is_cpu() == on_card) return;
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  bool on_card = false;
  std::int64_t now = 0, peak = 0;
};

}  // namespace

struct MemoryMeter::Impl {
  std::shared_ptr<Account> account = std::make_shared<Account>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, account};
};

MemoryMeter::MemoryMeter(bool on_card) : impl_(std::make_unique<Impl>()) {
  impl_->account->on_card = on_card;
}
MemoryMeter::~MemoryMeter() = default;

std::uint64_t MemoryMeter::peak_bytes() const {
  return static_cast<std::uint64_t>(impl_->account->peak);
}

}  // namespace skerry::diffusion
