// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/prompts.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/data/caption_embeddings.h"
#include "diffusion/data/ingest.h"
#include "diffusion/data/tokenizer.h"
#include "diffusion/formats/caption.h"
#include "diffusion/model/text_encoder.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

Result<Prompts> read_embeddings(const SampleSpec& spec, const EnsembleIndex& index) {
  const std::string& path = spec.prompt_embeddings;
  ASSIGN_OR_RETURN(const CaptionEmbeddings embeddings, CaptionEmbeddings::open(path));
  if (embeddings.dim() != index.model.caption_dim || embeddings.samples() == 0) {
    return fail(
        ErrorCode::kInvalid,
        text(path, ": expected embeddings [N,L,", index.model.caption_dim, "], as ", index.folder,
             " was trained with, found [", embeddings.samples(), ",L,", embeddings.dim(), "]"));
  }
  Prompts prompts;
  ASSIGN_OR_RETURN(prompts.null, embeddings.null());
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(spec.count, embeddings.samples()); ++i) {
    ASSIGN_OR_RETURN(std::vector<std::uint16_t> tokens, embeddings.tokens_of(i));
    prompts.tokens.push_back(std::move(tokens));
  }
  return prompts;
}

Result<Prompts> encode(const SampleSpec& spec, const EnsembleIndex& index) {
  ASSIGN_OR_RETURN(const TextEncoderFiles files, TextEncoderFiles::open(spec.text_encoder));
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::open(files.tokenizer));
  ASSIGN_OR_RETURN(const OpenedTextEncoder opened,
                   open_text_encoder(files, spec.device, spec.threads));
  if (opened.encoder->dim() != index.model.caption_dim) {
    return fail(ErrorCode::kInvalid, text(spec.text_encoder, ": expected a text encoder of width ",
                                          index.model.caption_dim, ", as ", index.folder,
                                          " was trained with, found ", opened.encoder->dim()));
  }
  return encode_prompts(
      spec.prompts, kDefaultLongest,
      [&](std::span<const std::string> texts) { return tokenizer.encode(texts); }, *opened.encoder);
}

}  // namespace

std::string_view Prompts::of(std::size_t image) const {
  const auto& prompt = tokens[image % tokens.size()];
  return storage::bytes_of_values<std::uint16_t>(prompt.empty() ? null : prompt);
}

Result<Prompts> encode_prompts(const std::vector<std::string>& prompts, std::uint32_t longest,
                               const Tokenize& tokenize, TextEncoder& encoder) {
  std::vector<std::string> texts{""};  // the null caption
  for (const std::string& prompt : prompts) {
    ASSIGN_OR_RETURN(texts.emplace_back(), clean_caption(prompt));
  }
  ASSIGN_OR_RETURN(const auto ids, tokenize(texts));
  Prompts encoded;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<std::int32_t> kept = cut_caption(ids[i], longest);
    if (kept.size() < ids[i].size()) {
      log_warning("a prompt is cut: it has too many tokens",
                  {{"tokens", ids[i].size()}, {"most", longest}, {"prompt", texts[i]}});
    }
    ASSIGN_OR_RETURN(std::vector<std::uint16_t> tokens, encode_halves(kept, {texts[i]}, encoder));
    if (i == 0) {
      encoded.null = std::move(tokens);
    } else {
      encoded.tokens.push_back(std::move(tokens));
    }
  }
  return encoded;
}

Result<Prompts> read_prompts(const SampleSpec& spec, const EnsembleIndex& index) {
  const bool asks = !spec.prompt_embeddings.empty() || !spec.prompts.empty();
  if (!index.model.is_pixart()) {
    if (!asks) return Prompts{};
    return fail(ErrorCode::kInvalid,
                text(index.folder, " was trained without captions: leave ",
                     spec.prompts.empty() ? "--prompt-embeddings" : "--prompt", " out"));
  }
  if (!asks) {
    return fail(ErrorCode::kInvalid,
                text(index.folder, " was trained on captions: expected --prompt TEXT with ",
                     "--text-encoder DIR, or --prompt-embeddings FILE"));
  }
  return spec.prompts.empty() ? read_embeddings(spec, index) : encode(spec, index);
}

}  // namespace skerry::diffusion
