// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/training_set.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"

namespace skerry::diffusion {

Result<TrainingSet::Shard> TrainingSet::open_shard(const std::string& path,
                                                   const ModelSpec& model) {
  ASSIGN_OR_RETURN(storage::Safetensors file, storage::Safetensors::open(path));
  const bool latents = file.header().find("latents") != nullptr;
  ASSIGN_OR_RETURN(const storage::TensorView images, file.tensor(latents ? "latents" : "images"));
  ASSIGN_OR_RETURN(const storage::TensorView labels, file.tensor("labels"));
  const std::uint64_t count = images.shape.empty() ? 0 : images.shape[0];
  const std::vector<std::uint64_t> expected{count, model.channels, model.image_size,
                                            model.image_size};
  if (images.dtype != (latents ? storage::DType::kF16 : storage::DType::kU8) ||
      images.shape != expected) {
    return fail(
        ErrorCode::kInvalid,
        text(path, latents ? ": latents must be F16" : ": images must be U8", " [n,",
             model.channels, ",", model.image_size, ",", model.image_size, "], as the model is"));
  }
  if (labels.dtype != storage::DType::kI32 || labels.shape != std::vector<std::uint64_t>{count}) {
    return fail(ErrorCode::kInvalid,
                text(path, ": labels must be I32 [", count, "], one for each image"));
  }
  Shard shard;
  if (model.is_pixart()) {
    ASSIGN_OR_RETURN(const storage::TensorView captions, file.tensor("caption"));
    if (captions.dtype != storage::DType::kI32 || captions.shape != labels.shape) {
      return fail(ErrorCode::kInvalid,
                  text(path, ": caption must be I32 [", count, "], one for each image"));
    }
    shard.captions = captions.data.data();
  }
  shard.images = {reinterpret_cast<const std::uint8_t*>(images.data.data()),
                  count,
                  model.pixels() * storage::bytes_of(images.dtype),
                  static_cast<int>(model.channels),
                  static_cast<int>(model.image_size),
                  latents};
  shard.labels = labels.data.data();
  shard.begin = count;  // the count, until open() sums up
  shard.file = std::move(file);
  return shard;
}

namespace {

template <class Number>
Number number_at(const char* numbers, std::uint64_t index) {
  Number number = 0;
  std::memcpy(&number, numbers + index * sizeof number, sizeof number);
  return number;
}

Result<void> check_partitions(std::size_t shards, const ModelSpec& model,
                              const std::vector<std::uint32_t>& partitions) {
  if (partitions.size() != (model.router_experts > 0 ? shards : 0)) {
    return fail(ErrorCode::kInvalid,
                text(partitions.size(), " partitions are named for ", shards,
                     " shards: a router's training names one of each, an expert's none"));
  }
  for (const std::uint32_t partition : partitions) {
    if (partition < model.router_experts) continue;
    return fail(ErrorCode::kInvalid, text("a shard of partition ", partition, " for a router of ",
                                          model.router_experts, " experts"));
  }
  return {};
}

}  // namespace

Result<TrainingSet> TrainingSet::open(const std::vector<std::string>& paths, const ModelSpec& model,
                                      const std::vector<std::uint32_t>& partitions) {
  std::vector<std::string> shards, captions;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(path));
    (CaptionRows::are_in(file) ? captions : shards).push_back(path);
  }
  TRY(check_partitions(shards.size(), model, partitions));
  TrainingSet set;
  for (const std::string& path : shards) {
    ASSIGN_OR_RETURN(Shard shard, open_shard(path, model));
    if (!set.shards_.empty() && shard.images.latents != set.shards_.front().images.latents)
      return fail(ErrorCode::kInvalid,
                  text(path, ": latents beside images: expected shards of one dataset"));
    if (!partitions.empty()) shard.partition = partitions[set.shards_.size()];
    const std::uint64_t count = shard.begin;
    shard.begin = set.total_;
    set.total_ += count;
    set.shards_.push_back(std::move(shard));
    for (std::uint64_t i = set.total_ - count; i < set.total_; ++i) {
      const std::int32_t label = set.label(i);
      if (label >= -1 && label < static_cast<std::int32_t>(model.classes)) continue;
      return fail(ErrorCode::kInvalid, text(path, ": label ", label, " is outside the model's ",
                                            model.classes, " classes"));
    }
  }
  if (set.total_ == 0)
    return fail(ErrorCode::kInvalid, "no samples to train on: the shards given are empty or none");
  if (set.total_ > UINT32_MAX)
    return fail(ErrorCode::kInvalid, "more than 2^32 samples in one partition");
  TRY(set.add_captions(captions, model));
  return set;
}

Result<void> TrainingSet::add_captions(const std::vector<std::string>& paths,
                                       const ModelSpec& model) {
  const std::size_t expected = model.is_pixart() ? shards_.size() : 0;
  if (paths.size() != expected) {
    return fail(ErrorCode::kInvalid, text(paths.size(), " files of captions for ", shards_.size(),
                                          " shards: expected ", expected, ", since the model ",
                                          expected > 0 ? "reads" : "does not read", " captions"));
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Shard& shard = shards_[i];
    ASSIGN_OR_RETURN(shard.caption_rows, CaptionRows::open(paths[i], model.caption_dim));
    for (std::uint64_t n = 0; n < shard.images.count; ++n) {
      const auto row = number_at<std::int32_t>(shard.captions, n);
      if (row >= 0 && static_cast<std::uint64_t>(row) < shard.caption_rows.size()) continue;
      return fail(ErrorCode::kInvalid, text(paths[i], ": sample ", n, " has caption ", row, " of ",
                                            shard.caption_rows.size()));
    }
  }
  return {};
}

const TrainingSet::Shard& TrainingSet::shard_of(std::uint64_t index) const {
  SKERRY_CHECK(index < total_, index, " of ", total_);
  const auto after =
      std::upper_bound(shards_.begin(), shards_.end(), index,
                       [](std::uint64_t i, const Shard& shard) { return i < shard.begin; });
  return *std::prev(after);
}

const unsigned char* TrainingSet::image(std::uint64_t index) const {
  const Shard& shard = shard_of(index);
  return shard.images.image(index - shard.begin).data();
}

void TrainingSet::read(std::uint64_t index, std::span<float> out) const {
  const Shard& shard = shard_of(index);
  shard.images.read(index - shard.begin, out);
}

std::int32_t TrainingSet::label(std::uint64_t index) const {
  const Shard& shard = shard_of(index);
  return number_at<std::int32_t>(shard.labels, index - shard.begin);
}

std::string_view TrainingSet::caption(std::uint64_t index) const {
  const Shard& shard = shard_of(index);
  const auto row = number_at<std::int32_t>(shard.captions, index - shard.begin);
  return shard.caption_rows.tokens(static_cast<std::uint64_t>(row));
}

std::string_view TrainingSet::null_caption(std::uint64_t index) const {
  return shard_of(index).caption_rows.tokens(0);
}

SampleOrder::SampleOrder(const TrainSpec& train, std::uint64_t samples)
    : seed_(train.seed), expert_(train.expert), attempt_(train.attempt), order_(samples) {}

void SampleOrder::shuffle(std::uint64_t pass) {
  std::iota(order_.begin(), order_.end(), 0U);
  Stream stream({.seed = seed_,
                 .expert = expert_,
                 .attempt = attempt_,
                 .step = pass,
                 .sample = 0,
                 .purpose = Purpose::kOrder});
  for (std::uint64_t left = order_.size(); left > 1; --left) {
    std::swap(order_[left - 1], order_[stream.below(left)]);
  }
  pass_ = pass;
}

std::uint64_t SampleOrder::at(std::uint64_t number) {
  const std::uint64_t pass = number / order_.size();
  if (pass != pass_) shuffle(pass);
  return order_[number % order_.size()];
}

}  // namespace skerry::diffusion
