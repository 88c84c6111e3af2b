// SPDX-License-Identifier: Apache-2.0
// From images or latents to a dataset folder: decode, split, cluster, write
// shards and statistics. docs/reference/dataset-folder.md lists the files. The
// folder appears whole or not at all: it is written beside its place and
// renamed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/data/dataset_index.h"
#include "diffusion/formats/progress.h"

namespace skerry::diffusion {

struct IngestOptions {
  std::string input;
  std::string output;
  std::uint32_t partitions = 1;
  int image_size = 0;  // 0: see read_images
  std::uint64_t seed = 0;
  int threads = 1;  // of matrix products; another count gives other low bits
  // A file of what images are grouped by (imported_features.h), a row for each
  // sample of the source in its order, skipped ones included; empty: principal
  // components of the pixels or latents. The router that needs no training sees
  // pixels alone: it knows each partition by the fine centroids of its own
  // images.
  std::string features;
  LatentOptions latents;
};
constexpr std::uint32_t kMaxPartitions = 1024;
// From this many samples an expert the caps of the partition table are a
// promise; below, the ratio is only reported.
constexpr std::uint64_t kBalancedFrom = 1000;

struct IngestSummary {
  DatasetIndex index;
  std::uint64_t fit = 0;   // held back
  std::uint64_t test = 0;  // held back
  std::uint32_t fine_centroids = 0;
  double ratio = 1;         // largest partition ÷ smallest
  bool within_caps = true;  // every partition in [0.92, 1.08] · N/K
};

// kConflict: the output exists and is not empty; kInvalid: nothing readable, or
// more partitions than the data can fill; kExhausted: the disk is full. After a
// failure neither the output nor its partial form is there.
Result<IngestSummary> ingest(const IngestOptions& options, const ProgressFn& progress);

}  // namespace skerry::diffusion
