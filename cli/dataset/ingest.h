// SPDX-License-Identifier: Apache-2.0
// Ingests images or latents into a dataset folder, by running the engine on
// this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/shell/surroundings.h"

namespace skerry::cli {

struct IngestOptions {
  std::string name;
  std::string source;
  std::uint32_t partitions = 0;
  std::uint32_t image_size = 0;  // 0: as the images are
  std::string features;          // empty: the engine's default
  std::optional<std::uint64_t> seed;
  std::string latent_scale, latent_shift;  // empty: the engine's defaults
  bool latents_scaled = false;
  std::string vae;                                         // that encodes the images; empty: none
  std::string captions, caption_embeddings, text_encoder;  // empty: the engine's defaults
  std::uint32_t longest = 0;                               // 0: the engine's default
};

// RETURNS: the folder for exactly these options: beside the images if that
// place is writable, else in $TMPDIR.
std::string ingest_folder(const IngestOptions& options, const Surroundings& around);

// Runs the engine, unless an earlier call completed the same dataset.
// RETURNS: the dataset folder.
Result<std::string> ingest(const IngestOptions& options, Surroundings& around);

}  // namespace skerry::cli
