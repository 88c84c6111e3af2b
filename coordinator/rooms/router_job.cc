// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/router_job.h"

#include <algorithm>
#include <cmath>

#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr double kShare = 0.04;
constexpr double kMostRows = 65536;  // that a batch may have

// Multiplications of one sample's forward pass, but for what does not grow with
// the depth or the tokens.
double products(const pb::ModelSpec& model) {
  const double width = model.width();
  const std::uint32_t side = model.image_size() / model.patch_size();
  const double patches = std::uint64_t{side} * side,
               tokens = patches + (model.router_experts() > 0 ? 1 : 0);
  double block = tokens * (12 * width + 2 * tokens) + 6 * width;
  if (model.caption_dim() > 0) {  // cross-attention to the words of a caption
    const double words = model.caption_tokens();
    block += 2 * (tokens + words) * width + 2 * tokens * words;
  }
  const double patch =
      static_cast<double>(model.channels()) * model.patch_size() * model.patch_size();
  return width * (model.depth() * block + patches * patch * (model.router_experts() > 0 ? 1 : 2));
}

}  // namespace

bool trains_router(const pb::RunSpec& spec) { return spec.router_kind() == "learned"; }

pb::ModelSpec router_model(const pb::ModelSpec& expert, std::uint32_t experts) {
  pb::ModelSpec model = expert;
  model.set_router_experts(experts);
  model.clear_caption_dim();
  model.clear_caption_tokens();
  model.clear_interpolation_scale();
  const std::uint32_t heads = expert.heads() / 2, width = heads * (expert.width() / expert.heads());
  if (width >= 8 && width % 4 == 0) {  // a quarter of the width encodes a position
    model.set_heads(heads);
    model.set_width(width);
  }
  return model;
}

pb::TrainSpec router_training(const pb::TrainSpec& train, const pb::ModelSpec& expert,
                              std::uint32_t experts) {
  pb::TrainSpec out = train;
  const double theirs = products(expert) * train.batch_size() * experts;
  const double rows = kShare / (1 - kShare) * theirs / products(router_model(expert, experts));
  out.set_batch_size(static_cast<std::uint32_t>(std::clamp(std::ceil(rows), 1.0, kMostRows)));
  out.set_t_distribution(pb::TIME_DISTRIBUTION_UNIFORM);
  return out;
}

}  // namespace skerry::coordinator
