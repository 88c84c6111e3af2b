// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/measure.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "diffusion/data/held_back.h"
#include "diffusion/router/analytic.h"
#include "diffusion/router/curve_fit.h"
#include "diffusion/router/learned.h"
#include "diffusion/router/noised.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kFitImages = 4000;  // enough for two scalars
constexpr std::size_t kFitPixels = std::size_t{6}
                                   << 20;  // fewer images where they are large, but not below …
constexpr std::size_t kLeastFitImages = 500;
constexpr float kFitLevels[] = {.01F, .02F, .05F, .1F, .2F, .3F,  .4F,
                                .5F,  .6F,  .7F,  .8F, .9F, .95F, .98F};
constexpr std::uint64_t kMeasureSeed = 1;

void append(std::vector<float>& out, const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  out.insert(out.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
}

RouterLevel measure_level(Router& router, const RoutedImages& images, double t, std::uint64_t draw,
                          std::chrono::duration<double>& spent) {
  RouterLevel level{.t = t};
  double known = 0;
  for_noised(images, t, kMeasureSeed, draw, [&](std::size_t begin, const NoisedImages& noisy) {
    const at::Tensor& x_t = noisy.x_t;
    const at::Tensor labels = torch::full({x_t.size(0)}, -1, torch::kI64);
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor log_p = router.log_probabilities(x_t, t, labels).to(torch::kF64).contiguous();
    spent += std::chrono::steady_clock::now() - start;
    const at::Tensor best = log_p.argmax(1);
    for (std::int64_t i = 0; i < log_p.size(0); ++i) {
      const std::int32_t truth = images.partitions[begin + static_cast<std::size_t>(i)];
      if (truth < 0) continue;
      ++known;
      level.accuracy += best.data_ptr<std::int64_t>()[i] == truth ? 1 : 0;
      level.cross_entropy -= log_p.data_ptr<double>()[i * log_p.size(1) + truth];
    }
  });
  level.accuracy /= static_cast<double>(images.rows.size());
  level.cross_entropy /= std::max(known, 1.0);
  return level;
}

}  // namespace

void fit_curves(RouterFolder& statistics, const RoutedImages& all_images, std::uint64_t seed) {
  RouterStatistics& shared = statistics.shared;
  const std::size_t affordable = kFitPixels / all_images.pixels.dimensions();
  const RoutedImages images =
      thinned(all_images, std::clamp(affordable, kLeastFitImages, kFitImages));
  AnalyticRouter router(statistics);
  ViewScores scores{.experts = statistics.partitions.size(), .partitions = images.partitions};
  append(scores.prior, router.log_shares());
  shared.levels.clear();
  shared.curve_gaussian.clear();
  shared.curve_feature.clear();
  for (const float t : kFitLevels) {
    scores.gaussian.clear();
    scores.feature.clear();
    for_noised(images, t, seed, shared.levels.size(), [&](std::size_t, const NoisedImages& noisy) {
      const AnalyticRouter::Views views = router.views(noisy.x_t, t);
      append(scores.gaussian, views.gaussian);
      append(scores.feature, views.feature);
    });
    const CurvePoint point = fit_curve_point(scores);
    shared.levels.push_back(t);
    shared.curve_gaussian.push_back(static_cast<float>(point.gaussian));
    shared.curve_feature.push_back(static_cast<float>(point.feature));
  }
  // Pure noise says nothing: only the shares are left.
  shared.levels.push_back(1.F);
  shared.curve_gaussian.push_back(0.F);
  shared.curve_feature.push_back(0.F);
}

double RouterMeasurement::mean_cross_entropy() const {
  double sum = 0;
  for (const RouterLevel& level : levels) sum += level.cross_entropy;
  return levels.empty() ? 0 : sum / static_cast<double>(levels.size());
}

std::vector<double> usual_levels() { return {.05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95}; }

Result<RoutedImages> test_images(const std::string& dataset_folder, const HeldBack& test,
                                 const RouterFolder& statistics) {
  const std::string path = dataset_folder + "/test.safetensors";
  if (test.pixels.dimensions() != statistics.shared.whole.dimensions()) {
    return fail(ErrorCode::kInvalid,
                text(path, ": its images are of another size than the router's"));
  }
  RoutedImages images{test.pixels, {}, {}, test.labels};
  for (std::uint32_t i = 0; i < test.partitions.size(); ++i) {
    const std::int32_t partition = test.partitions[i];
    if (partition < 0 || static_cast<std::size_t>(partition) >= statistics.whole_count) {
      return fail(ErrorCode::kInvalid, text(path, ": image ", i, " is in partition ", partition,
                                            ", but there are ", statistics.whole_count));
    }
    images.rows.push_back(i);
    images.partitions.push_back(statistics.place_of(partition));
  }
  if (images.rows.empty()) return fail(ErrorCode::kInvalid, text(path, ": no image to measure on"));
  return images;
}

namespace {

Result<RouterMeasurement> measure_with(Router& router, const std::string& dataset_folder,
                                       const RouterFolder& statistics,
                                       const std::vector<double>& levels, std::uint64_t limit) {
  ASSIGN_OR_RETURN(const HeldBack test, read_held_back(dataset_folder + "/test.safetensors"));
  ASSIGN_OR_RETURN(RoutedImages images, test_images(dataset_folder, test, statistics));
  images = thinned(images, limit);
  RouterMeasurement out{images.rows.size(), {}};
  std::chrono::duration<double> spent{};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    out.levels.push_back(measure_level(router, images, levels[i], i, spent));
  }
  out.microseconds = 1e6 * spent.count() / static_cast<double>(images.rows.size() * levels.size());
  return out;
}

}  // namespace

Result<RouterMeasurement> measure_router(const std::string& dataset_folder,
                                         const std::string& router_folder,
                                         const std::vector<double>& levels, std::uint64_t limit) {
  ASSIGN_OR_RETURN(const RouterFolder statistics, read_router_folder(router_folder));
  AnalyticRouter router(statistics);
  return measure_with(router, dataset_folder, statistics, levels, limit);
}

Result<RouterMeasurement> measure_learned_router(const std::string& dataset_folder,
                                                 const std::string& weights,
                                                 const std::vector<double>& levels,
                                                 std::uint64_t limit, int device) {
  return guarded([&]() -> Result<RouterMeasurement> {
    ASSIGN_OR_RETURN(const torch::Device on,
                     open_device(device, static_cast<std::uint32_t>(at::get_num_threads())));
    ASSIGN_OR_RETURN(const auto router, load_learned_router(weights, dataset_folder, on));
    ASSIGN_OR_RETURN(const RouterFolder statistics, read_router_folder(dataset_folder));
    return measure_with(*router, dataset_folder, statistics, levels, limit);
  });
}

}  // namespace skerry::diffusion
