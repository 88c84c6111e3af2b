// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

Result<Trace> Trace::begin(bool on_card) {
  return guarded([&]() -> Result<Trace> {
    std::set<ActivityType> activities{ActivityType::CPU};
    if (on_card) activities.insert(ActivityType::CUDA);
    const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/true);
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    return Trace();
  });
}

Trace::Trace(Trace&& other) noexcept : records_(std::exchange(other.records_, false)) {}

Trace::~Trace() {
  if (records_) profiler::disableProfiler();
}

Result<void> Trace::write(const std::string& path) {
  SKERRY_CHECK(records_, "a trace is written once");
  records_ = false;
  return guarded([&]() -> Result<void> {
    const auto result = profiler::disableProfiler();
    // The writer reports no failure; the file that it leaves shows it.
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    result->save(path);
    const auto bytes = std::filesystem::file_size(path, ignored);
    if (ignored || bytes == 0) {
      return fail(ErrorCode::kIo,
                  text("cannot write the trace ", path, ": is its folder there, and writable?"));
    }
    return {};
  });
}

}  // namespace skerry::diffusion
