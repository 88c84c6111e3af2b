// SPDX-License-Identifier: Apache-2.0
// Turns images or latents into a dataset folder: decode, split, cluster, write
// shards and statistics. docs/reference/dataset-folder.md lists the files. The
// folder appears complete or not at all: it is written under another name and
// renamed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/data/dataset_index.h"
#include "diffusion/formats/progress.h"

namespace skerry::diffusion {

// As PixArtSigmaPipeline cuts prompts.
constexpr std::uint32_t kDefaultLongest = 300;
constexpr std::uint32_t kMinLongest = 2, kMaxLongest = 1024;

struct IngestOptions {
  std::string input;
  std::string output;
  std::uint32_t partitions = 1;
  int image_size = 0;  // 0: see read_images()
  std::uint64_t seed = 0;
  int threads = 1;  // of matrix products; another number changes low bits
  // A file of features to group images by (imported_features.h). It has a row
  // for each sample of the source in its order, skipped ones included. Empty:
  // principal components of the pixels or latents. The analytic router sees
  // only pixels; it knows each partition by the fine centroids of its own
  // images.
  std::string features;
  LatentOptions latents;
  // An autoencoder that encodes the images (model/image_encoder.h), and the
  // card for it and for the text encoder; −1: the CPU. They use all
  // processors. OUTPUT.encoded keeps what is encoded until the folder is
  // complete. A killed ingestion goes on there.
  std::string vae;
  int device = 0;
  // Whether captions beside the images are read. They are counted; a dataset
  // stores embeddings alone.
  CaptionChoice captions = CaptionChoice::kAuto;
  // A file of caption embeddings (caption_embeddings.h) with a row for each
  // sample of the source in its order, skipped ones included. Empty: the
  // dataset has no text.
  std::string caption_embeddings;
  // A folder with a T5 encoder and its tokenizer, which encode the captions
  // (model/text_encoder.h). A caption of more tokens than `longest` is cut.
  // Empty: as `caption_embeddings` says.
  std::string text_encoder;
  std::uint32_t longest = kDefaultLongest;
};
constexpr std::uint32_t kMaxPartitions = 1024;
// With at least this many samples an expert, the caps of the partition table
// are a promise. Below, the ratio is only reported.
constexpr std::uint64_t kBalancedFrom = 1000;

struct IngestSummary {
  DatasetIndex index;
  std::uint64_t fit = 0;   // held back
  std::uint64_t test = 0;  // held back
  std::uint32_t fine_centroids = 0;
  double ratio = 1;           // largest partition ÷ smallest
  bool within_caps = true;    // every partition in [0.92, 1.08] · N/K
  std::uint64_t resumed = 0;  // images that an earlier attempt had encoded
  // Distinct captions that were stored, or else found beside the images; images
  // without one; and the mean size of a stored one.
  std::uint64_t captions = 0;
  std::uint64_t uncaptioned = 0;
  double caption_bytes = 0;
  std::uint64_t cut_captions = 0;      // distinct ones, to `longest` tokens
  std::uint64_t resumed_captions = 0;  // that an earlier attempt had encoded
};

// ON FAILURE: neither the output nor its partial form remains, but
// OUTPUT.encoded does.
// - kConflict: the output exists and is not empty, or another process is
//   writing it.
// - kInvalid: no sample is readable, or the data cannot fill so many
//   partitions.
// - kExhausted: the disk is full.
Result<IngestSummary> ingest(const IngestOptions& options, const ProgressFn& progress);

}  // namespace skerry::diffusion
