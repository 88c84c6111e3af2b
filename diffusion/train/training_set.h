// SPDX-License-Identifier: Apache-2.0
// The memory-mapped shards of one partition, or of all for a router, and the
// order in which training reads them. A shard has `images` u8 [n,C,S,S] or
// `latents` f16 of that shape, and `labels` i32 [n] with −1 = unlabelled. For a
// PixArt it also has `caption` i32 [n], a row of the file of captions that
// belongs to the shard. Does not include LibTorch.
// THREADS: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/pixels.h"
#include "diffusion/train/caption_rows.h"
#include "model/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

class TrainingSet {
 public:
  // Opens every shard and checks it: shapes as the model's, labels below its
  // classes. Each shard of a router is of one partition, `partitions` in the
  // order of `paths`. For a PixArt as many files of captions are among `paths`,
  // in the order of their shards.
  // ON FAILURE: kInvalid names the shard.
  static Result<TrainingSet> open(const std::vector<std::string>& paths, const ModelSpec& model,
                                  const std::vector<std::uint32_t>& partitions = {});

  std::uint64_t size() const { return total_; }
  // Reads C·S·S values in the model's range into `out`: a pixel as u8 / 127.5 −
  // 1, a latent unchanged.
  void read(std::uint64_t index, std::span<float> out) const;
  const unsigned char* image(std::uint64_t index) const;  // its bytes; LIFETIME: the set's
  bool holds_latents() const { return shards_.front().images.latents; }  // all shards do, or none
  std::int32_t label(std::uint64_t index) const;
  // RETURNS: the tokens of a sample's caption, or of the null caption of its
  // shard, as CaptionRows::tokens().
  // REQUIRES: a PixArt's set.
  std::string_view caption(std::uint64_t index) const;
  std::string_view null_caption(std::uint64_t index) const;
  std::uint32_t partition(std::uint64_t index) const { return shard_of(index).partition; }

 private:
  struct Shard {
    storage::Safetensors file;
    PixelView images;
    const char* labels = nullptr;
    const char* captions = nullptr;  // rows of…
    CaptionRows caption_rows;
    std::uint64_t begin = 0;
    std::uint32_t partition = 0;
  };
  static Result<Shard> open_shard(const std::string& path, const ModelSpec& model);
  // The captions of each shard, in their order.
  Result<void> add_captions(const std::vector<std::string>& paths, const ModelSpec& model);
  const Shard& shard_of(std::uint64_t index) const;

  std::vector<Shard> shards_;
  std::uint64_t total_ = 0;
};

// The order of samples: number i of the training is i = step · batch + row.
// Every pass over the data is a permutation of the set. It depends only on
// (seed, expert, attempt, pass).
class SampleOrder {
 public:
  SampleOrder(const TrainSpec& train, std::uint64_t samples);
  std::uint64_t at(std::uint64_t number);

 private:
  void shuffle(std::uint64_t pass);
  std::uint64_t seed_;
  std::uint32_t expert_, attempt_;
  std::vector<std::uint32_t> order_;
  std::uint64_t pass_ = UINT64_MAX;
};

}  // namespace skerry::diffusion
