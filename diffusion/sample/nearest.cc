// SPDX-License-Identifier: Apache-2.0
// Whether samples look like what was asked for: the label of the nearest real
// image.
#include <algorithm>

#include "base/text.h"
#include "diffusion/runtime/device.h"
#include "diffusion/sample/sample.h"
#include "diffusion/train/training_set.h"

namespace skerry::diffusion {
namespace {

at::Tensor as_rows(const std::uint8_t* bytes, std::uint64_t count, std::uint64_t pixels) {
  const auto view = at::from_blob(
      const_cast<std::uint8_t*>(bytes),
      {static_cast<std::int64_t>(count), static_cast<std::int64_t>(pixels)}, at::kByte);
  return view.to(at::kFloat) / 255.0;
}

}  // namespace

Result<LabelAgreement> nearest_label_agreement(const Samples& samples,
                                               const std::string& shard_path, std::uint64_t limit) {
  ModelSpec model;
  model.image_size = samples.image_size;
  model.channels = samples.channels;
  model.classes = static_cast<std::uint32_t>(samples.classes.size());
  ASSIGN_OR_RETURN(const TrainingSet real, TrainingSet::open({shard_path}, model));
  if (real.holds_latents()) {
    return fail(
        ErrorCode::kInvalid,
        text(shard_path, ": expected a shard of images to compare pixels with, found latents"));
  }
  return guarded([&]() -> Result<LabelAgreement> {
    const std::uint64_t count = std::min(limit, real.size());
    if (count == 0)
      return fail(ErrorCode::kInvalid, "the number of images to compare with must be at least 1");
    const auto images = as_rows(real.image(0), count, model.pixels());  // [N,d]
    const auto drawn =
        as_rows(samples.pixels.data(), samples.labels.size(), model.pixels());  // [n,d]
    const auto distance =
        images.square().sum(1).unsqueeze(0) - 2 * at::mm(drawn, images.t());  // [n,N] + |x|²
    const auto nearest = distance.argmin(1);
    LabelAgreement agreement;
    for (std::size_t i = 0; i < samples.labels.size(); ++i) {
      if (samples.labels[i] < 0) continue;
      ++agreement.labelled;
      const auto index = static_cast<std::uint64_t>(nearest.data_ptr<std::int64_t>()[i]);
      if (real.label(index) == samples.labels[i]) ++agreement.agree;
    }
    return agreement;
  });
}

}  // namespace skerry::diffusion
