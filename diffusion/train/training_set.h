// SPDX-License-Identifier: Apache-2.0
// The shards of one partition, or for a router of all, memory-mapped, and the
// order in which training reads them. No LibTorch shows here. Shards: `images`
// u8 [n,C,S,S] or `latents` f16 of that shape, `labels` i32 [n] with −1 =
// unlabelled. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/pixels.h"
#include "diffusion/model/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

class TrainingSet {
 public:
  // Opens and checks every shard: shapes as the model's, labels below its
  // classes. kInvalid names the shard. A router's are of one partition each,
  // `partitions` in the order of `paths`.
  static Result<TrainingSet> open(const std::vector<std::string>& paths, const ModelSpec& model,
                                  const std::vector<std::uint32_t>& partitions = {});

  std::uint64_t size() const { return total_; }
  // C·S·S values as the model sees them, which is what `out` holds: of a pixel
  // u8 / 127.5 − 1, a latent as it is.
  void read(std::uint64_t index, std::span<float> out) const;
  const unsigned char* image(std::uint64_t index) const;  // its bytes, valid as long as the set
  bool holds_latents() const { return shards_.front().images.latents; }  // as all shards or none
  std::int32_t label(std::uint64_t index) const;
  std::uint32_t partition(std::uint64_t index) const { return shard_of(index).partition; }

 private:
  struct Shard {
    storage::Safetensors file;
    PixelView images;
    const char* labels = nullptr;
    std::uint64_t begin = 0;
    std::uint32_t partition = 0;
  };
  static Result<Shard> open_shard(const std::string& path, const ModelSpec& model);
  const Shard& shard_of(std::uint64_t index) const;

  std::vector<Shard> shards_;
  std::uint64_t total_ = 0;
};

// Sample number i of the training (i = step · batch + row) is a permutation of
// the set for each pass over the data: every sample once a pass, in an order
// that depends on (seed, expert, attempt, pass) only.
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
