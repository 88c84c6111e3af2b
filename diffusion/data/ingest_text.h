// SPDX-License-Identifier: Apache-2.0
// The captions of a dataset that is being ingested: imported, encoded here, or
// only counted. Does not include LibTorch.
// THREADS: one.
#pragma once

#include <optional>
#include <string>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/data/caption_embeddings.h"
#include "diffusion/data/encode_captions.h"
#include "diffusion/data/ingest.h"
#include "diffusion/data/tokenizer.h"
#include "diffusion/formats/read_images.h"
#include "diffusion/model/text_encoder_config.h"

namespace skerry::diffusion {

// An encoder's processors, and what its output depends on beside its input: its
// files, the device and the number of threads.
unsigned encoder_threads();
Hash encoder_key(const Hash& files, const IngestOptions& options);

// ON FAILURE: kInvalid unless a file has a row for each sample of the source.
Result<void> check_rows(std::uint64_t rows, const ImageSet& images, const std::string& path);

class IngestText {
 public:
  // Opens the files that the options name, and starts the tokenizer, before the
  // images are read.
  static Result<IngestText> open(const IngestOptions& options);
  // Says in `summary` what the captions are. `kept` may be null without a text
  // encoder.
  // RETURNS: none: the dataset has no text.
  Result<std::optional<Captions>> read(const ImageSet& images, const IngestOptions& options,
                                       const std::string& scratch_folder, KeptBatches* kept,
                                       const ProgressFn& progress, IngestSummary& summary);

 private:
  Result<EncodedCaptions> encode(const ImageSet& images, const IngestOptions& options,
                                 const std::string& scratch_folder, KeptBatches& kept,
                                 const ProgressFn& progress, std::string& name);

  std::optional<CaptionEmbeddings> imported_;
  std::optional<TextEncoderFiles> encoder_;
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace skerry::diffusion
