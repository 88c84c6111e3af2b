// SPDX-License-Identifier: Apache-2.0
// An ensemble folder as `skerry ensemble fetch` writes it, from checkpoints and
// statistics on this disk: the real command against a coordinator of the test.
// Neither LibTorch nor protobuf shows here.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::oracle {

struct TrainedFiles {
  ModelSpec model;
  std::vector<std::string> classes;
  std::vector<std::string> checkpoints;  // [K]
  std::string router_folder;             // router.safetensors, partition-<k>.safetensors
};

// Expert 0 as a run of far larger experts would have it: in files of at most
// `shard_bytes`.
Result<void> export_in_shards(const TrainedFiles& files, std::uint64_t shard_bytes,
                              const std::string& folder);

Result<void> fetch_ensemble(const TrainedFiles& files, const std::string& folder);

}  // namespace skerry::oracle
