#include "diffusion/speed.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "diffusion/device.h"
#include "diffusion/model.h"
#include "diffusion/product.h"

namespace skerry::diffusion {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::int64_t kProductSide = 1024;
constexpr int kProductTries = 8;

// LibTorch calls plain functions, so the account is where its own profilers have theirs: in the thread's debug info.
struct Account : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* /*address*/, std::int64_t /*bytes*/, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device /*device*/) override {}
  bool memoryProfilingEnabled() const override { return false; }

  SteadyClock::time_point now() const {
    if (on_card) torch::cuda::synchronize();
    return SteadyClock::now();
  }
  bool on_card = false;
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
  explicit Impl(bool on_card) { account->on_card = on_card; }
  ~Impl() { at::removeCallback(handle); }

  std::shared_ptr<Account> account = std::make_shared<Account>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, account};
  at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_begin, on_end).scopes({at::RecordScope::USER_SCOPE}));
};

PhaseClock::PhaseClock(bool on_card) : impl_(std::make_unique<Impl>(on_card)) {}
PhaseClock::~PhaseClock() = default;

std::array<double, kPhases.size()> PhaseClock::seconds() const { return impl_->account->seconds; }

double forward_flops(const ModelSpec& model) {
  const double width = model.width, depth = model.depth, tokens = model.tokens();
  const double patch = 1.0 * model.patch_size * model.patch_size * model.channels;
  const double ends = 2 * patch * width;                 // into the width, and out of it
  const double block = 12 * width * width;               // query, key, value, out; MLP
  const double attention = 2 * tokens * tokens * width;  // scores, and what they mix
  const double embedder = static_cast<double>(kTimeFeatures) * width + width * width;
  const double modulation = depth * 6 * width * width + 2 * width * width;
  return 2 * (tokens * (ends + depth * block) + depth * attention + embedder + modulation);
}

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
      fastest = std::max(fastest, 2.0 * kProductSide * kProductSide * kProductSide / std::max(seconds, 1e-9));
    }
    return fastest;
  });
}

std::optional<double> published_peak(const std::string& device_name, const std::string& precision) {
  struct Peaks {
    const char* name;  // found within the driver's; the more special comes first
    double bf16, fp32;
  };
  static constexpr std::array<Peaks, 12> kCards{{{"H200", 989.4e12, 66.9e12},
                                                 {"H100 PCIe", 756e12, 51e12},
                                                 {"H100 NVL", 835e12, 60e12},
                                                 {"H100", 989.4e12, 66.9e12},
                                                 {"A100", 312e12, 19.5e12},
                                                 {"L40S", 362e12, 91.6e12},
                                                 {"L40", 181e12, 90.5e12},
                                                 {"L4", 121e12, 30.3e12},
                                                 {"RTX 6000 Ada", 364.2e12, 91.1e12},
                                                 {"RTX 4090", 165.2e12, 82.6e12},
                                                 {"RTX 3090", 71e12, 35.6e12},
                                                 {"RTX A6000", 154.8e12, 38.7e12}}};
  for (const Peaks& card : kCards) {
    if (device_name.find(card.name) != std::string::npos) return precision == "bf16" ? card.bf16 : card.fp32;
  }
  return std::nullopt;
}

}  // namespace skerry::diffusion
