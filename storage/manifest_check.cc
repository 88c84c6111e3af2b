// SPDX-License-Identifier: Apache-2.0
#include "storage/manifest_check.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "storage/tensor_size.h"

namespace skerry::storage {
namespace {

constexpr std::size_t kMaxFileNameBytes = 255;
constexpr std::size_t kMaxRunBytes = 63;
constexpr std::size_t kMaxTensorNameBytes = 512;
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::size_t kMaxMetadata = 256;
constexpr std::uint64_t kMaxObjectBytes = 1ULL << 50;

Error corrupt(const std::string& what) { return fail(ErrorCode::kCorrupt, "manifest: " + what); }

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool is_file_name(const std::string& name) {
  const auto allowed = [](char c) {
    return c != '/' && c != '\\' && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  };
  return !name.empty() && name.size() <= kMaxFileNameBytes && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), allowed);
}

// Run ids become part of a family's name.
bool is_run(const std::string& run) {
  return !run.empty() && run.size() <= kMaxRunBytes &&
         std::all_of(run.begin(), run.end(), is_plain);
}

// Sizes of chunks and their sum; one walk over the whole manifest shares it.
class ChunkCheck {
 public:
  // The bytes of this list.
  Result<std::uint64_t> add(const std::vector<Chunk>& chunks) {
    std::uint64_t sum = 0;
    for (const Chunk& chunk : chunks) {
      if (chunk.bytes == 0 || chunk.bytes > kMaxChunkBytes)
        return corrupt(text("a chunk of ", chunk.bytes, " bytes"));
      const auto [known, is_new] = sizes_.try_emplace(chunk.hash, chunk.bytes);
      if (known->second != chunk.bytes)
        return corrupt(text("chunk ", chunk.hash.short_hex(), " has two sizes"));
      sum += chunk.bytes;
    }
    total_ += sum;
    if (total_ > kMaxObjectBytes) return corrupt("an object of more than 1 PiB");
    return sum;
  }

 private:
  std::unordered_map<Hash, std::uint32_t> sizes_;
  std::uint64_t total_ = 0;
};

Result<void> check_tensor(const ManifestTensor& tensor, ChunkCheck& chunks) {
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes)
    return corrupt("a tensor without a fitting name");
  if (tensor.shape.size() > kMaxDimensions)
    return corrupt(text("tensor ", tensor.name, " has too many dimensions"));
  ASSIGN_OR_RETURN(const std::uint64_t listed, chunks.add(tensor.chunks));
  const auto needed = tensor_bytes(tensor.dtype, tensor.shape);
  if (!needed || *needed != listed) {
    return corrupt(text("tensor ", tensor.name, " lists ", listed,
                        " bytes, which do not fit its type and shape"));
  }
  return {};
}

Result<void> check_positions(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  std::unordered_set<std::uint32_t> positions;
  for (const ManifestPart& part : manifest.parts) {
    for (const ManifestTensor& tensor : part.tensors) {
      if (!names.insert(tensor.name).second) return corrupt(text("two tensors ", tensor.name));
      if (!positions.insert(tensor.position).second)
        return corrupt(text("two tensors at position ", tensor.position));
    }
  }
  if (names.size() > kMaxTensors)
    return corrupt(text(names.size(), " tensors; at most ", kMaxTensors));
  // Distinct and below the count: a permutation.
  for (const std::uint32_t position : positions) {
    if (position >= names.size())
      return corrupt(text("tensor position ", position, " of ", names.size()));
  }
  return {};
}

Result<void> check_checkpoint(const Manifest& manifest) {
  if (!is_run(manifest.run.str())) return corrupt("a checkpoint without a fitting run id");
  if (!manifest.name.empty()) return corrupt("a checkpoint with a file name");
  if (manifest.from_step > manifest.step) return corrupt("a checkpoint that ends before it begins");
  ChunkCheck chunks;
  std::unordered_set<std::string_view> parts;
  for (const ManifestPart& part : manifest.parts) {
    if (part.name != kPartEma && part.name != kPartState)
      return corrupt(text("unknown part \"", part.name, "\""));
    if (!parts.insert(part.name).second) return corrupt(text("two parts ", part.name));
    if (!part.chunks.empty()) return corrupt("chunks outside of tensors");
    for (const ManifestTensor& tensor : part.tensors) TRY(check_tensor(tensor, chunks));
  }
  return check_positions(manifest);
}

Result<void> check_file(const Manifest& manifest) {
  if (!is_file_name(manifest.name)) return corrupt("a file without a fitting name");
  if (manifest.parts.size() != 1 || manifest.parts[0].name != kPartFile)
    return corrupt("a file has one part, \"file\"");
  const ManifestPart& part = manifest.parts[0];
  if (!part.tensors.empty()) return corrupt("tensors in a file");
  ChunkCheck chunks;
  return chunks.add(part.chunks).map([](std::uint64_t) {});
}

}  // namespace

Result<void> check_manifest(const Manifest& manifest) {
  if (manifest.fingerprint.size() > kMaxTextBytes) return corrupt("an overlong fingerprint");
  if (manifest.metadata.size() > kMaxMetadata) return corrupt("too much metadata");
  for (const auto& [key, value] : manifest.metadata) {
    if (key.size() > kMaxTextBytes || value.size() > kMaxTextBytes)
      return corrupt("an overlong metadata value");
  }
  return manifest.kind == ManifestKind::kCheckpoint ? check_checkpoint(manifest)
                                                    : check_file(manifest);
}

}  // namespace skerry::storage
