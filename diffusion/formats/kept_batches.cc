// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/kept_batches.h"

#include <array>
#include <cstring>
#include <span>

namespace skerry::diffusion {
namespace {

// Before the output of a batch.
struct Head {
  std::array<char, Hash::kBytes> inputs{}, output{};
  std::uint64_t bytes = 0;
};

bool read(const storage::File& file, std::span<char> to, std::uint64_t from) {
  const Result<std::size_t> count = file.read_at(from, to);
  return count && *count == to.size();
}

bool is_hash(const std::array<char, Hash::kBytes>& stored, const Hash& hash) {
  return std::string_view(stored.data(), stored.size()) == hash.view();
}

}  // namespace

Result<KeptBatches> KeptBatches::open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<storage::File> file,
                   storage::posix_files().open(path, storage::Files::Open::kWrite));
  return KeptBatches(std::move(file));
}

std::optional<std::string> KeptBatches::next(const Hash& inputs) {
  Head head;
  if (is_at_end_ || !read(*file_, {reinterpret_cast<char*>(&head), sizeof head}, at_))
    return std::nullopt;
  const Result<std::uint64_t> size = file_->size();
  const std::uint64_t begin = at_ + sizeof head;
  if (!is_hash(head.inputs, inputs) || !size || head.bytes > *size - begin) return std::nullopt;
  std::string output(head.bytes, '\0');
  if (!read(*file_, output, begin) || !is_hash(head.output, blake2b(output))) return std::nullopt;
  at_ = begin + output.size();
  return output;
}

Result<void> KeptBatches::append(const Hash& inputs, std::string_view output) {
  if (!is_at_end_) TRY(file_->resize(at_));
  is_at_end_ = true;
  Head head{.bytes = output.size()};
  std::memcpy(head.inputs.data(), inputs.view().data(), Hash::kBytes);
  std::memcpy(head.output.data(), blake2b(output).view().data(), Hash::kBytes);
  std::string record(reinterpret_cast<const char*>(&head), sizeof head);
  record += output;
  TRY(file_->write_at(at_, record));
  at_ += record.size();
  return {};
}

}  // namespace skerry::diffusion
