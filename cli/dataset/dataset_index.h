// SPDX-License-Identifier: Apache-2.0
// Reads dataset.json, the index of an ingested dataset's folder. Validates
// every field before use.
//
// ON FAILURE: kNotFound without the file; kCorrupt if it contradicts itself or
// the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::cli {

struct DatasetFileEntry {
  std::string name;
  // shard, captions, router, partition, fit, test; weights (never in a
  // dataset.json)
  std::string role;
  std::int32_t partition = -1;  // −1: belongs to all
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

// What the captions of a dataset are.
struct DatasetText {
  std::uint32_t dim = 0;      // numbers of a token
  std::string encoder;        // "imported", or a name of T5's files
  std::uint32_t longest = 0;  // tokens of a caption
  std::uint64_t sided = 0;    // distinct captions that say left or right
};

struct DatasetIndex {
  std::string folder;
  std::string json;  // the file itself
  std::uint32_t partitions = 0;
  std::uint64_t samples = 0;
  std::uint32_t channels = 0;
  std::uint32_t image_size = 0;
  bool latents = false;             // of an autoencoder, in place of images
  std::optional<DatasetText> text;  // none: no captions
  std::vector<std::string> classes;
  std::vector<std::uint64_t> partition_samples;
  std::uint64_t skipped = 0;
  std::vector<std::pair<std::string, std::string>> skipped_examples;  // path, reason
  std::vector<DatasetFileEntry> files;
};

bool is_dataset_folder(const std::string& folder);  // has a dataset.json
Result<DatasetIndex> read_dataset_index(const std::string& folder);

}  // namespace skerry::cli
