// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/statistics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr std::int32_t kMostPartitions = 1024;
constexpr const char* kLatentScale = "latent_scale";
constexpr const char* kLatentShift = "latent_shift";

using storage::DType;
using storage::Safetensors;
using storage::TensorView;
using Shape = std::vector<std::uint64_t>;

template <class T>
TensorView view_of(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
  return {
      std::move(name), dtype, std::move(shape),
      std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

Error broken(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kCorrupt, text(path, ": ", what));
}

template <class T>
Result<std::vector<T>> read_tensor(const Safetensors& file, const std::string& path,
                                   std::string_view name, DType dtype,
                                   std::optional<Shape> shape = std::nullopt) {
  const auto tensor = file.tensor(name);
  if (!tensor.has_value()) return broken(path, text("tensor ", name, " is missing"));
  if (tensor->dtype != dtype)
    return broken(path, text("tensor ", name, " is not of type ", storage::name_of(dtype)));
  if (shape && tensor->shape != *shape)
    return broken(path, text("tensor ", name, " has another shape than expected"));
  std::vector<T> values(tensor->data.size() / sizeof(T));
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

Result<GaussianStatistics> read_gaussian(const Safetensors& file, const std::string& path,
                                         std::string_view basis) {
  GaussianStatistics out;
  ASSIGN_OR_RETURN(out.mean, read_tensor<float>(file, path, "mean", DType::kF32));
  ASSIGN_OR_RETURN(out.variances, read_tensor<float>(file, path, "variances", DType::kF32));
  ASSIGN_OR_RETURN(out.components,
                   read_tensor<float>(file, path, basis, DType::kF32,
                                      Shape{out.mean.size(), out.variances.size()}));
  ASSIGN_OR_RETURN(const auto residual,
                   read_tensor<float>(file, path, "residual", DType::kF32, Shape{1}));
  out.residual = residual[0];
  const bool sane =
      !out.mean.empty() && out.rank() < out.dimensions() && all_finite(out.mean) &&
      all_finite(out.components) && all_finite(out.variances) && out.residual > 0 &&
      std::isfinite(out.residual) &&
      std::all_of(out.variances.begin(), out.variances.end(), [](float v) { return v >= 0; });
  if (!sane) return broken(path, "not the statistics of a Gaussian");
  return out;
}

Result<std::int64_t> read_number(const Safetensors& file, const std::string& path,
                                 const std::string& key) {
  const auto value = storage::number_in<std::int64_t>(file.header().metadata, key);
  if (!value || *value < 0) return broken(path, text("metadata ", key, " is missing or no number"));
  return *value;
}

std::string exact_text(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

Result<void> check(const RouterStatistics& s, const std::string& path) {
  const std::size_t features = s.feature_count;
  if (features == 0 || features > s.whole.rank())
    return broken(path, "more features than components");
  if (s.table.empty() || s.fine_centroids.size() != s.table.size() * features) {
    return broken(path, "fine centroids and table disagree");
  }
  if (std::ranges::any_of(s.table, [](std::int32_t k) { return k < 0 || k >= kMostPartitions; })) {
    return broken(path, text("the table names an expert below 0 or above ", kMostPartitions - 1));
  }
  if (s.levels.empty() || !std::is_sorted(s.levels.begin(), s.levels.end())) {
    return broken(path, "the levels of the curves are not ascending");
  }
  const bool finite = all_finite(s.fine_centroids) && all_finite(s.levels) &&
                      all_finite(s.curve_gaussian) && all_finite(s.curve_feature) &&
                      all_finite(s.linear_a) && all_finite(s.linear_b);
  if (!finite) return broken(path, "a value is not finite");
  return {};
}

}  // namespace

Result<void> write_router_statistics(const std::string& path, const RouterStatistics& s) {
  const std::uint64_t d = s.whole.dimensions(), rank = s.whole.rank(), fine = s.table.size(),
                      levels = s.levels.size();
  const std::vector<float> residual{s.whole.residual};
  std::vector<TensorView> tensors{
      view_of("mean", DType::kF32, {d}, s.whole.mean),
      view_of("basis", DType::kF32, {d, rank}, s.whole.components),
      view_of("variances", DType::kF32, {rank}, s.whole.variances),
      view_of("residual", DType::kF32, {1}, residual),
      view_of("fine_centroids", DType::kF32, {fine, s.feature_count}, s.fine_centroids),
      view_of("table", DType::kI32, {fine}, s.table),
      view_of("levels", DType::kF32, {levels}, s.levels),
      view_of("curve_gaussian", DType::kF32, {levels}, s.curve_gaussian),
      view_of("curve_feature", DType::kF32, {levels}, s.curve_feature),
      view_of("linear_a", DType::kF32, {s.linear_a.size()}, s.linear_a),
      view_of("linear_b", DType::kF32, {s.linear_a.size(), d}, s.linear_b)};
  std::map<std::string, std::string> metadata{{"feature_count", std::to_string(s.feature_count)}};
  if (s.latents) {
    metadata[kLatentScale] = exact_text(s.latents->scale);
    metadata[kLatentShift] = exact_text(s.latents->shift);
  }
  if (s.captions) {
    for (TensorView& tensor : tensors_of(*s.captions)) tensors.push_back(std::move(tensor));
    metadata[kCaptionSharpness] = exact_text(s.captions->sharpness);
  }
  return storage::write_safetensors(path, tensors, metadata);
}

Result<void> write_partition_statistics(const std::string& path, const PartitionStatistics& s) {
  const GaussianStatistics& g = s.gaussian;
  const std::vector<float> residual{g.residual};
  const std::vector<TensorView> tensors{
      view_of("mean", DType::kF32, {g.dimensions()}, g.mean),
      view_of("components", DType::kF32, {g.dimensions(), g.rank()}, g.components),
      view_of("variances", DType::kF32, {g.rank()}, g.variances),
      view_of("residual", DType::kF32, {1}, residual),
      view_of("label_counts", DType::kI64, {s.label_counts.size()}, s.label_counts)};
  return storage::write_safetensors(path, tensors, {{"samples", std::to_string(s.samples)}});
}

Result<RouterStatistics> read_router_statistics(const std::string& path) {
  ASSIGN_OR_RETURN(const Safetensors file, Safetensors::open(path));
  RouterStatistics s;
  ASSIGN_OR_RETURN(s.whole, read_gaussian(file, path, "basis"));
  ASSIGN_OR_RETURN(const std::int64_t features, read_number(file, path, "feature_count"));
  s.feature_count = static_cast<std::size_t>(features);
  ASSIGN_OR_RETURN(s.table, read_tensor<std::int32_t>(file, path, "table", DType::kI32));
  ASSIGN_OR_RETURN(s.fine_centroids, read_tensor<float>(file, path, "fine_centroids", DType::kF32,
                                                        Shape{s.table.size(), s.feature_count}));
  ASSIGN_OR_RETURN(s.levels, read_tensor<float>(file, path, "levels", DType::kF32));
  const Shape levels{s.levels.size()};
  ASSIGN_OR_RETURN(s.curve_gaussian,
                   read_tensor<float>(file, path, "curve_gaussian", DType::kF32, levels));
  ASSIGN_OR_RETURN(s.curve_feature,
                   read_tensor<float>(file, path, "curve_feature", DType::kF32, levels));
  constexpr std::uint64_t kTimes = std::size(kLinearTimes);
  ASSIGN_OR_RETURN(s.linear_a,
                   read_tensor<float>(file, path, "linear_a", DType::kF32, Shape{kTimes}));
  ASSIGN_OR_RETURN(s.linear_b, read_tensor<float>(file, path, "linear_b", DType::kF32,
                                                  Shape{kTimes, s.whole.dimensions()}));
  ASSIGN_OR_RETURN(s.latents, latent_scaling_in(file, path));
  ASSIGN_OR_RETURN(s.captions, caption_statistics_in(file, path));
  TRY(check(s, path));
  return s;
}

Result<std::optional<LatentScaling>> latent_scaling_in(const Safetensors& file,
                                                       const std::string& path) {
  const auto& metadata = file.header().metadata;
  if (!metadata.contains(kLatentScale) && !metadata.contains(kLatentShift)) return std::nullopt;
  const auto scale = storage::number_in<double>(metadata, kLatentScale),
             shift = storage::number_in<double>(metadata, kLatentShift);
  const LatentScaling scaling{.scale = scale.value_or(0), .shift = shift.value_or(0)};
  if (!scale || !shift || !validate(scaling))
    return broken(path,
                  text("metadata ", kLatentScale, " and ", kLatentShift, " are not two numbers"));
  return scaling;
}

Result<PartitionStatistics> read_partition_statistics(const std::string& path) {
  ASSIGN_OR_RETURN(const Safetensors file, Safetensors::open(path));
  PartitionStatistics s;
  ASSIGN_OR_RETURN(s.gaussian, read_gaussian(file, path, "components"));
  ASSIGN_OR_RETURN(s.label_counts,
                   read_tensor<std::int64_t>(file, path, "label_counts", DType::kI64));
  ASSIGN_OR_RETURN(s.samples, read_number(file, path, "samples"));
  std::int64_t sum = 0;
  for (const std::int64_t count : s.label_counts) {
    if (count < 0 || count > s.samples) return broken(path, "a label count is out of range");
    sum += count;
  }
  if (s.samples == 0 || sum != s.samples) return broken(path, "label counts and samples disagree");
  return s;
}

std::int32_t RouterFolder::place_of(std::int32_t partition) const {
  const auto found = std::ranges::lower_bound(indices, partition);
  return found != indices.end() && *found == partition
             ? static_cast<std::int32_t>(found - indices.begin())
             : -1;
}

Result<RouterFolder> read_router_folder(const std::string& folder) {
  RouterFolder out;
  ASSIGN_OR_RETURN(out.shared, read_router_statistics(folder + "/router.safetensors"));
  for (std::int32_t index = 0; index < kMostPartitions; ++index) {
    const std::string path = text(folder, "/partition-", index, ".safetensors");
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    ASSIGN_OR_RETURN(PartitionStatistics partition, read_partition_statistics(path));
    if (partition.gaussian.dimensions() != out.shared.whole.dimensions()) {
      return broken(path, "its images are of another size than router.safetensors says");
    }
    if (!out.partitions.empty() &&
        partition.label_counts.size() != out.partitions[0].label_counts.size()) {
      return broken(path, text("another number of classes than partition ", out.indices[0]));
    }
    out.partitions.push_back(std::move(partition));
    out.indices.push_back(index);
  }
  if (out.partitions.empty())
    return fail(ErrorCode::kNotFound,
                text(folder, ": no statistics of a partition, such as partition-0.safetensors"));
  out.whole_count =
      static_cast<std::size_t>(std::max(out.indices.back(), std::ranges::max(out.shared.table))) +
      1;
  for (std::int32_t& expert : out.shared.table) expert = out.place_of(expert);
  return out;
}

}  // namespace skerry::diffusion
