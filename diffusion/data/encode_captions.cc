// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/encode_captions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clean_text.h"
#include "base/text.h"
#include "diffusion/formats/half.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using storage::bytes_of_values;

constexpr std::size_t kTexts = 4096;        // that are tokenized at once
constexpr std::size_t kBatchTokens = 1024;  // that are encoded at once
constexpr std::size_t kShownBytes = 100;    // of a caption in a message

Error beyond(std::string_view caption, float value) {
  std::string shown = clean_text(std::string(caption), kShownBytes);
  std::ranges::replace_if(
      shown, [](char c) { return c >= 0 && c < ' '; }, ' ');
  return fail(ErrorCode::kInvalid,
              text("the caption \"", shown, "\": expected finite numbers up to 65504, which 16 ",
                   "bits hold, found ", value, ": choose another text encoder"));
}

// The ids of every caption, one after the other.
class Ids {
 public:
  std::uint64_t cut = 0;

  Result<void> add(const std::vector<std::string>& texts, std::uint32_t longest,
                   const Tokenize& tokenize) {
    for (std::size_t begin = 0; begin < texts.size(); begin += kTexts) {
      const auto some = std::span(texts).subspan(begin, std::min(kTexts, texts.size() - begin));
      ASSIGN_OR_RETURN(const auto found, tokenize(some));
      for (const std::vector<std::int32_t>& ids : found) add_one(ids, longest);
    }
    return {};
  }
  std::span<const std::int32_t> of(std::uint32_t caption) const {
    return std::span(ids_).subspan(begin_[caption], begin_[caption + 1] - begin_[caption]);
  }
  bool are_equal(std::uint32_t a, std::uint32_t b) const {
    return std::ranges::equal(of(a), of(b));
  }
  // RETURNS: the captions that differ from the first, equal ones side by side,
  // short ones first.
  std::vector<std::uint32_t> in_order() const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t caption = 1; caption + 1 < begin_.size(); ++caption) {
      if (!are_equal(0, caption)) order.push_back(caption);
    }
    std::ranges::sort(order, [&](const std::uint32_t a, const std::uint32_t b) {
      const auto left = of(a), right = of(b);
      if (left.size() != right.size()) return left.size() < right.size();
      const int by_ids = std::memcmp(left.data(), right.data(), left.size_bytes());
      return by_ids != 0 ? by_ids < 0 : a < b;
    });
    return order;
  }

 private:
  void add_one(const std::vector<std::int32_t>& ids, std::uint32_t longest) {
    const std::vector<std::int32_t> kept = cut_caption(ids, longest);
    ids_.insert(ids_.end(), kept.begin(), kept.end());
    cut += kept.size() < ids.size() ? 1 : 0;
    begin_.push_back(ids_.size());
  }

  std::vector<std::int32_t> ids_;
  std::vector<std::size_t> begin_{0};
};

// Encodes batches, or takes them from the file of an earlier attempt.
class Encoding {
 public:
  Encoding(const std::vector<std::string>& texts, const Ids& ids, TextEncoder& encoder,
           const Hash& key, KeptBatches& kept)
      : texts_(texts), ids_(ids), encoder_(encoder), key_(key), kept_(kept) {}

  std::uint64_t resumed = 0;

  // RETURNS: the tokens of captions of equal length, in F16.
  Result<std::vector<std::uint16_t>> encode(std::span<const std::uint32_t> captions) {
    std::vector<std::int32_t> ids;
    for (const std::uint32_t caption : captions) {
      const auto these = ids_.of(caption);
      ids.insert(ids.end(), these.begin(), these.end());
    }
    Hasher hasher;
    hasher.update(key_.view());
    hasher.update(text("captions ", captions.size(), ' '));
    hasher.update(bytes_of_values<std::int32_t>(ids));
    const Hash hash = hasher.finish();
    if (const auto kept = kept_.next(hash);
        kept && kept->size() == sizeof(std::uint16_t) * ids.size() * encoder_.dim()) {
      std::vector<std::uint16_t> tokens(ids.size() * encoder_.dim());
      std::memcpy(tokens.data(), kept->data(), kept->size());
      resumed += captions.size();
      return tokens;
    }
    std::vector<std::string_view> texts;
    for (const std::uint32_t caption : captions) texts.emplace_back(texts_[caption]);
    ASSIGN_OR_RETURN(std::vector<std::uint16_t> tokens, encode_halves(ids, texts, encoder_));
    TRY(kept_.append(hash, bytes_of_values<std::uint16_t>(tokens)));
    return tokens;
  }

 private:
  const std::vector<std::string>& texts_;
  const Ids& ids_;
  TextEncoder& encoder_;
  const Hash& key_;
  KeptBatches& kept_;
};

}  // namespace

std::vector<std::int32_t> cut_caption(std::span<const std::int32_t> ids, std::uint32_t longest) {
  if (ids.size() <= longest) return {ids.begin(), ids.end()};
  std::vector<std::int32_t> kept(ids.begin(), ids.begin() + longest);
  kept.back() = ids.back();
  return kept;
}

Result<std::vector<std::uint16_t>> encode_halves(std::span<const std::int32_t> ids,
                                                 const std::vector<std::string_view>& texts,
                                                 TextEncoder& encoder) {
  ASSIGN_OR_RETURN(const std::vector<float> values, encoder.encode(ids, texts.size()));
  std::vector<std::uint16_t> tokens(values.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = to_half(values[i]);
    if (!std::isfinite(from_half(tokens[i])))
      return beyond(texts[i * texts.size() / tokens.size()], values[i]);
  }
  return tokens;
}

Result<EncodedCaptions> encode_captions(const std::vector<std::string>& texts,
                                        std::span<const std::uint32_t> caption_of,
                                        std::uint32_t longest, const Tokenize& tokenize,
                                        TextEncoder& encoder, const Hash& key, KeptBatches& kept,
                                        const std::string& scratch_folder,
                                        const ProgressFn& progress) {
  Ids ids;
  progress({"captions", 0, texts.size()});
  TRY(ids.add(texts, longest, tokenize));
  Encoding encoding(texts, ids, encoder, key, kept);
  ASSIGN_OR_RETURN(Captions::Builder builder,
                   Captions::Builder::create(encoder.dim(), scratch_folder));
  std::vector<std::uint32_t> number(texts.size());
  const auto take = [&](std::span<const std::uint32_t> captions) -> Result<void> {
    ASSIGN_OR_RETURN(const std::vector<std::uint16_t> tokens, encoding.encode(captions));
    const std::size_t each = tokens.size() / captions.size();
    for (std::size_t i = 0; i < captions.size(); ++i) {
      ASSIGN_OR_RETURN(number[captions[i]], builder.add(std::span(tokens).subspan(i * each, each)));
    }
    return {};
  };
  const std::uint32_t null = 0;
  TRY(take({&null, 1}));
  const std::vector<std::uint32_t> order = ids.in_order();
  std::vector<std::uint32_t> batch;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || !ids.are_equal(order[i - 1], order[i])) batch.push_back(order[i]);
    const std::size_t length = ids.of(order[i]).size();
    const bool is_last = i + 1 == order.size() || ids.of(order[i + 1]).size() != length;
    if (!is_last && (batch.size() + 1) * length <= kBatchTokens) continue;
    if (!batch.empty()) TRY(take(batch));
    batch.clear();
    progress({"captions", i + 1, texts.size()});
  }
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (ids.are_equal(order[i - 1], order[i])) number[order[i]] = number[order[i - 1]];
  }
  progress({"captions", texts.size(), texts.size()});
  std::vector<std::uint32_t> of;
  for (const std::uint32_t caption : caption_of) of.push_back(number[caption]);
  ASSIGN_OR_RETURN(Captions captions, builder.finish(std::move(of)));
  return EncodedCaptions{std::move(captions), ids.cut, encoding.resumed};
}

}  // namespace skerry::diffusion
