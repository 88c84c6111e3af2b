// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/ingest_text.h"

#include <algorithm>
#include <thread>

#include "base/text.h"
#include "diffusion/model/text_encoder.h"

namespace skerry::diffusion {

unsigned encoder_threads() { return std::max(1U, std::thread::hardware_concurrency()); }

Hash encoder_key(const Hash& files, const IngestOptions& options) {
  return blake2b(text(files.hex(), '\n', options.device, '\n', encoder_threads()));
}

Result<void> check_rows(std::uint64_t rows, const ImageSet& images, const std::string& path) {
  const std::uint64_t samples = images.pixels.count + images.skipped;
  if (rows == samples) return {};
  return fail(
      ErrorCode::kInvalid,
      text(path, " has ", rows, " rows, but there are ", samples, " images (", images.skipped,
           " of them skipped): expected a row for each, "
           "in the order in which they are read (a folder's files by their path)"));
}

Result<IngestText> IngestText::open(const IngestOptions& options) {
  IngestText opened;
  if (!options.caption_embeddings.empty()) {
    ASSIGN_OR_RETURN(opened.imported_, CaptionEmbeddings::open(options.caption_embeddings));
  }
  if (!options.text_encoder.empty()) {
    ASSIGN_OR_RETURN(opened.encoder_, TextEncoderFiles::open(options.text_encoder));
    ASSIGN_OR_RETURN(opened.tokenizer_, Tokenizer::open(opened.encoder_->tokenizer));
  }
  return opened;
}

Result<std::optional<Captions>> IngestText::read(const ImageSet& images,
                                                 const IngestOptions& options,
                                                 const std::string& scratch_folder,
                                                 KeptBatches* kept, const ProgressFn& progress,
                                                 IngestSummary& summary) {
  std::optional<Captions> captions;
  std::string name = "imported";
  if (imported_) {
    TRY(check_rows(imported_->samples(), images, options.caption_embeddings));
    ASSIGN_OR_RETURN(captions, Captions::import(*imported_, images.places, scratch_folder));
  } else if (encoder_) {
    ASSIGN_OR_RETURN(EncodedCaptions encoded,
                     encode(images, options, scratch_folder, *kept, progress, name));
    captions = std::move(encoded.captions);
    summary.cut_captions = encoded.cut;
    summary.resumed_captions = encoded.resumed;
  } else {
    summary.captions = images.captions.empty() ? 0 : images.captions.size() - 1;
    summary.uncaptioned = images.uncaptioned;
    return captions;
  }
  summary.captions = captions->distinct();
  summary.uncaptioned = captions->uncaptioned();
  summary.caption_bytes = captions->bytes_a_sample();
  summary.index.text = {
      .dim = captions->dim(),
      .encoder = std::move(name),
      .longest = captions->longest(),
      .sided = static_cast<std::uint64_t>(std::ranges::count_if(images.captions, says_side))};
  return captions;
}

Result<EncodedCaptions> IngestText::encode(const ImageSet& images, const IngestOptions& options,
                                           const std::string& scratch_folder, KeptBatches& kept,
                                           const ProgressFn& progress, std::string& name) {
  if (images.captions.empty()) {
    return fail(ErrorCode::kInvalid,
                text(options.input, ": not one sample has a caption for --text-encoder: expected ",
                     "a .txt or .caption beside an image, metadata.jsonl, or a WebDataset's txt ",
                     "or json; --captions class takes the names of classes"));
  }
  ASSIGN_OR_RETURN(const OpenedTextEncoder opened,
                   open_text_encoder(*encoder_, options.device, encoder_threads()));
  name = "t5:" + opened.identity.short_hex();
  return encode_captions(
      images.captions, images.caption_of, options.longest,
      [this](std::span<const std::string> texts) { return tokenizer_->encode(texts); },
      *opened.encoder, encoder_key(opened.identity, options), kept, scratch_folder, progress);
}

}  // namespace skerry::diffusion
