// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/speed.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <chrono>

#include "diffusion/kernels/product.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::int64_t kProductSide = 1024;
constexpr int kProductTries = 8;

// LibTorch calls plain functions, so the account is where its own profilers
// have theirs: in the thread's debug info.
struct Account : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*address*/, std::int64_t /*bytes*/, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device /*device*/) override {}
  bool memoryProfilingEnabled() const override { return false; }

  SteadyClock::time_point now() const {
    if (wait) wait();
    return SteadyClock::now();
  }
  std::function<void()> wait;
  std::array<double, kPhases.size()> seconds{};
};

struct Begun : at::ObserverContext {
  SteadyClock::time_point at;
};

Account& account() {
  return *static_cast<Account*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& /*scope*/) {
  auto begun = std::make_unique<Begun>();
  begun->at = account().now();
  return begun;
}

void on_end(const at::RecordFunction& scope, at::ObserverContext* context) {
  const auto phase = std::find(kPhases.begin(), kPhases.end(), std::string_view(scope.name()));
  if (phase == kPhases.end()) return;
  const auto took = account().now() - static_cast<Begun*>(context)->at;
  account().seconds[static_cast<std::size_t>(phase - kPhases.begin())] +=
      std::chrono::duration<double>(took).count();
}

}  // namespace

struct PhaseClock::Impl {
  explicit Impl(std::function<void()> wait) { account->wait = std::move(wait); }
  ~Impl() { at::removeCallback(handle); }

  std::shared_ptr<Account> account = std::make_shared<Account>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, account};
  at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_begin, on_end).scopes({at::RecordScope::USER_SCOPE}));
};

PhaseClock::PhaseClock(std::function<void()> wait)
    : impl_(std::make_unique<Impl>(std::move(wait))) {}
PhaseClock::~PhaseClock() = default;

std::array<double, kPhases.size()> PhaseClock::seconds() const { return impl_->account->seconds; }

Result<double> measure_cpu_product(const TrainSpec& train) {
  return guarded([&]() -> Result<double> {
    TRY(open_device(-1, train.threads));
    const at::NoGradGuard no_grad;
    const bool bf16 = train.precision == "bf16" && cpu_multiplies_bf16();
    const auto options = at::TensorOptions().dtype(bf16 ? at::kBFloat16 : at::kFloat);
    const at::Tensor left = at::ones({kProductSide, kProductSide}, options);   // [n,k]
    const at::Tensor right = at::ones({kProductSide, kProductSide}, options);  // [m,k]
    const at::Tensor bias = at::zeros({kProductSide}, options);                // [m]
    double fastest = 0;
    for (int i = 0; i < kProductTries; ++i) {
      const auto begin = SteadyClock::now();
      const at::Tensor product = bf16 ? at::mm(left, right.t()) : linear(left, right, bias);
      const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
      fastest = std::max(
          fastest, 2.0 * kProductSide * kProductSide * kProductSide / std::max(seconds, 1e-9));
    }
    return fastest;
  });
}

}  // namespace skerry::diffusion
