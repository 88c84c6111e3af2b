// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/velocity.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/text.h"
#include "diffusion/data/held_back.h"
#include "diffusion/model/padded.h"
#include "diffusion/router/analytic.h"
#include "diffusion/router/noised.h"
#include "diffusion/runtime/device.h"
#include "diffusion/sample/ensemble.h"
#include "diffusion/train/caption_rows.h"

namespace skerry::diffusion {
namespace {

constexpr std::uint64_t kMeasureSeed = 2;

// Sums over pixels and images.
struct Errors {
  double linear = 0, full = 0, top1 = 0, own = 0;
};

double squared(const at::Tensor& difference) {
  return difference.square().sum(torch::kF64).item<double>();
}

at::Tensor column(const std::vector<std::int32_t>& values, std::size_t begin, std::int64_t count) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
  return torch::tensor(std::vector<std::int64_t>(first, first + count), torch::kI64);
}

// The captions of the test half, for an ensemble that reads them.
class TestCaptions {
 public:
  static Result<TestCaptions> open(const std::string& dataset_folder, const HeldBack& test,
                                   std::uint32_t dim) {
    TestCaptions captions;
    captions.dim_ = dim;
    if (dim == 0) return captions;
    const std::string path = dataset_folder + "/captions-test.safetensors";
    ASSIGN_OR_RETURN(captions.rows_, CaptionRows::open(path, dim));
    ASSIGN_OR_RETURN(const storage::TensorView column, test.file.tensor("caption"));
    captions.of_.resize(test.labels.size());
    if (column.dtype != storage::DType::kI32 || column.data.size() != captions.of_.size() * 4)
      return fail(ErrorCode::kCorrupt, text(dataset_folder, "/test.safetensors: expected caption ",
                                            "I32 [", captions.of_.size(), "]"));
    std::memcpy(captions.of_.data(), column.data.data(), column.data.size());
    for (const std::int32_t row : captions.of_) {
      if (row >= 0 && static_cast<std::uint64_t>(row) < captions.rows_.size()) continue;
      return fail(ErrorCode::kCorrupt,
                  text(path, ": a sample has caption ", row, " of ", captions.rows_.size()));
    }
    return captions;
  }
  // Of images of the test half, by their rows there.
  Condition of(std::span<const std::uint32_t> images, const at::Tensor& labels) const {
    if (dim_ == 0) return {.labels = labels};
    std::vector<std::string_view> captions;
    for (const std::uint32_t image : images)
      captions.push_back(rows_.tokens(static_cast<std::uint64_t>(of_[image])));
    return padded(captions, dim_);
  }

 private:
  std::uint32_t dim_ = 0;
  CaptionRows rows_;
  std::vector<std::int32_t> of_;  // of each image of the half
};

class Judge {
 public:
  Judge(Ensemble& ensemble, AnalyticRouter& router, const RouterStatistics& shared,
        const RoutedImages& images, const TestCaptions& captions)
      : ensemble_(ensemble),
        router_(router),
        shared_(shared),
        images_(images),
        captions_(captions) {}

  VelocityLevel at_level(std::size_t level) {
    const double t = kLinearTimes[level];
    Errors errors;
    for_noised(images_, t, kMeasureSeed, level, [&](std::size_t begin, const NoisedImages& noisy) {
      add_block(level, begin, noisy, errors);
    });
    const double scale =
        1.0 / static_cast<double>(images_.rows.size() * images_.pixels.dimensions());
    return {t, errors.linear * scale, errors.full * scale, errors.top1 * scale, errors.own * scale};
  }

 private:
  void add_block(std::size_t level, std::size_t begin, const NoisedImages& noisy, Errors& errors) {
    const double t = kLinearTimes[level];
    const std::int64_t n = noisy.x_t.size(0), size = images_.pixels.size;
    const auto d = static_cast<std::int64_t>(images_.pixels.dimensions());
    const at::Tensor b = torch::tensor(shared_.linear_b, torch::kF32)
                             .view({-1, d})[static_cast<std::int64_t>(level)];
    errors.linear += squared(shared_.linear_a[level] * noisy.x_t + b - noisy.velocity);

    // The rest is computed where the ensemble is.
    const torch::Device on = ensemble_.device();
    const at::Tensor x_t = noisy.x_t.view({n, -1, size, size}).to(on),
                     velocity = noisy.velocity.to(on);
    const at::Tensor labels = column(images_.labels, begin, n).to(on);
    const Condition condition =
        captions_.of(std::span(images_.rows).subspan(begin, static_cast<std::size_t>(n)), labels);
    std::vector<at::Tensor> outputs;
    for (std::size_t k = 0; k < ensemble_.experts(); ++k) {
      outputs.push_back(ensemble_.velocity(k, x_t, t, condition).flatten(1));
    }
    const at::Tensor velocities = torch::stack(outputs, 1);  // [n, K, d]
    const at::Tensor log_p = router_.log_probabilities(x_t, t, labels);
    const auto chosen = [&](const at::Tensor& expert) {
      return velocities.gather(1, expert.view({n, 1, 1}).expand({n, 1, d})).squeeze(1);
    };
    errors.full += squared((log_p.exp().unsqueeze(2) * velocities).sum(1) - velocity);
    errors.top1 += squared(chosen(log_p.argmax(1)) - velocity);
    const at::Tensor own = column(images_.partitions, begin, n).to(on);
    errors.own += squared(chosen(at::where(own < 0, log_p.argmax(1), own)) - velocity);
  }

  Ensemble& ensemble_;
  AnalyticRouter& router_;
  const RouterStatistics& shared_;
  const RoutedImages& images_;
  const TestCaptions& captions_;
};

Result<VelocityMeasurement> measure(const std::string& ensemble_folder,
                                    const std::string& dataset_folder, std::uint64_t limit,
                                    int device, const std::string& precision) {
  ASSIGN_OR_RETURN(Ensemble ensemble,
                   Ensemble::load(ensemble_folder, device, /*resident=*/0, precision));
  ASSIGN_OR_RETURN(const RouterFolder statistics, read_router_folder(ensemble_folder + "/router"));
  ASSIGN_OR_RETURN(const HeldBack test, read_held_back(dataset_folder + "/test.safetensors"));
  ASSIGN_OR_RETURN(RoutedImages images, test_images(dataset_folder, test, statistics));
  if (statistics.indices != ensemble.index().indices) {
    return fail(ErrorCode::kInvalid,
                text(ensemble_folder,
                     ": the router's partitions are not those of the experts in ensemble.json"));
  }
  images = thinned(images, limit);
  AnalyticRouter router(statistics);
  ASSIGN_OR_RETURN(const TestCaptions captions,
                   TestCaptions::open(dataset_folder, test, ensemble.index().model.caption_dim));
  Judge judge(ensemble, router, statistics.shared, images, captions);
  VelocityMeasurement out{images.rows.size(), {}};
  for (std::size_t level = 0; level < std::size(kLinearTimes); ++level)
    out.levels.push_back(judge.at_level(level));
  return out;
}

}  // namespace

bool VelocityMeasurement::below_linear() const {
  return std::all_of(levels.begin(), levels.end(),
                     [](const VelocityLevel& l) { return l.full < l.linear; });
}

Result<VelocityMeasurement> measure_velocity(const std::string& ensemble_folder,
                                             const std::string& dataset_folder, std::uint64_t limit,
                                             int device, const std::string& precision) {
  const torch::NoGradGuard no_grad;
  return guarded(
      [&] { return measure(ensemble_folder, dataset_folder, limit, device, precision); });
}

}  // namespace skerry::diffusion
