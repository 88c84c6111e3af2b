// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/captions.h"

#include <algorithm>
#include <unordered_map>

#include "base/unique_fd.h"
#include "storage/files.h"

namespace skerry::diffusion {

using storage::bytes_of_values;

struct Captions::Impl {
  std::uint64_t dim = 0, longest = 0, uncaptioned = 0;
  std::vector<std::uint32_t> of;     // of each image
  std::vector<std::uint64_t> begin;  // of each caption and the end, in tokens
  std::vector<Hash> hashes;
  UniqueFd scratch;
  storage::MappedFile mapped;

  Result<void> append(std::span<const std::uint16_t> tokens, const Hash& hash) {
    TRY(storage::write_all(scratch.get(), bytes_of_values(tokens), "captions"));
    hashes.push_back(hash);
    begin.push_back(begin.back() + tokens.size() / dim);
    longest = std::max<std::uint64_t>(longest, tokens.size() / dim);
    return {};
  }
  std::uint64_t tokens(std::uint32_t caption) const { return begin[caption + 1] - begin[caption]; }
  std::string_view bytes(std::uint32_t caption) const {
    return mapped.bytes().substr(begin[caption] * dim * 2, tokens(caption) * dim * 2);
  }
};

Result<Captions::Builder> Captions::Builder::create(std::uint64_t dim,
                                                    const std::string& scratch_folder) {
  Builder builder;
  builder.impl_ = std::make_shared<Impl>();
  builder.impl_->dim = dim;
  builder.impl_->begin = {0};
  ASSIGN_OR_RETURN(builder.impl_->scratch, storage::open_scratch_file(scratch_folder));
  return builder;
}

Result<std::uint32_t> Captions::Builder::add(std::span<const std::uint16_t> tokens) {
  const Hash hash = blake2b(bytes_of_values(tokens));
  const auto [at, is_new] =
      numbers_.try_emplace(hash, static_cast<std::uint32_t>(impl_->hashes.size()));
  if (is_new) TRY(impl_->append(tokens, hash));
  return at->second;
}

Result<Captions> Captions::Builder::finish(std::vector<std::uint32_t> of) {
  impl_->uncaptioned = static_cast<std::uint64_t>(std::ranges::count(of, 0U));
  impl_->of = std::move(of);
  ASSIGN_OR_RETURN(impl_->mapped,
                   storage::MappedFile::map(impl_->scratch.get(),
                                            impl_->begin.back() * impl_->dim * 2, "captions"));
  Captions captions;
  captions.impl_ = std::move(impl_);
  return captions;
}

Result<Captions> Captions::import(const CaptionEmbeddings& embeddings,
                                  std::span<const std::uint32_t> places,
                                  const std::string& scratch_folder) {
  ASSIGN_OR_RETURN(Builder builder, Builder::create(embeddings.dim(), scratch_folder));
  ASSIGN_OR_RETURN(const std::vector<std::uint16_t> null, embeddings.null());
  TRY(builder.add(null));
  std::vector<std::uint32_t> of;
  for (const std::uint32_t place : places) {
    ASSIGN_OR_RETURN(const std::vector<std::uint16_t> tokens, embeddings.tokens_of(place));
    std::uint32_t number = 0;
    if (!tokens.empty()) {
      ASSIGN_OR_RETURN(number, builder.add(tokens));
    }
    of.push_back(number);
  }
  return builder.finish(std::move(of));
}

std::uint64_t Captions::dim() const { return impl_->dim; }
std::uint64_t Captions::longest() const { return impl_->longest; }
std::uint64_t Captions::uncaptioned() const { return impl_->uncaptioned; }
std::uint64_t Captions::distinct() const { return impl_->hashes.size() - 1; }

std::uint32_t Captions::number_of(std::uint32_t image) const { return impl_->of[image]; }
std::string_view Captions::tokens_of(std::uint32_t number) const { return impl_->bytes(number); }

double Captions::bytes_a_sample() const {
  double tokens = 0;
  for (const std::uint32_t caption : impl_->of)
    tokens += static_cast<double>(impl_->tokens(caption));
  return 2 * static_cast<double>(impl_->dim) * tokens / static_cast<double>(impl_->of.size());
}

Result<std::vector<std::int32_t>> Captions::write(const std::string& path,
                                                  std::span<const std::uint32_t> images) const {
  std::unordered_map<std::uint32_t, std::int32_t> rows{{0, 0}};
  std::vector<std::uint32_t> distinct{0};
  std::vector<std::int32_t> of;
  for (const std::uint32_t image : images) {
    const std::uint32_t caption = impl_->of[image];
    const auto [at, is_new] = rows.try_emplace(caption, static_cast<std::int32_t>(distinct.size()));
    if (is_new) distinct.push_back(caption);
    of.push_back(at->second);
  }
  std::vector<std::int64_t> begin{0};
  std::string hashes;
  for (const std::uint32_t caption : distinct) {
    begin.push_back(begin.back() + static_cast<std::int64_t>(impl_->tokens(caption)));
    hashes += impl_->hashes[caption].view();
  }
  const auto count = static_cast<std::uint64_t>(distinct.size());
  // The tokens follow as a stream: they may be far more than memory.
  ASSIGN_OR_RETURN(
      const std::string header,
      storage::safetensors_header({{"begin", storage::DType::kI64, {count + 1}, {}},
                                   {"hash", storage::DType::kU8, {count, Hash::kBytes}, {}},
                                   {"tokens",
                                    storage::DType::kF16,
                                    {static_cast<std::uint64_t>(begin.back()), impl_->dim},
                                    {}}},
                                  {}));
  ASSIGN_OR_RETURN(storage::PartialFile file, storage::PartialFile::create(path));
  TRY(file.append(header));
  TRY(file.append(bytes_of_values<std::int64_t>(begin)));
  TRY(file.append(hashes));
  for (const std::uint32_t caption : distinct) TRY(file.append(impl_->bytes(caption)));
  TRY(file.commit());
  return of;
}

}  // namespace skerry::diffusion
