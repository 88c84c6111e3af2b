// SPDX-License-Identifier: Apache-2.0
#include "storage/manifest.h"

#include <set>

#include "base/check.h"
#include "storage/layout.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace storage;

void check_positions(const Manifest& manifest) {
  std::set<std::uint32_t> positions;
  for (const ManifestPart& part : manifest.parts) {
    for (const ManifestTensor& tensor : part.tensors) positions.insert(tensor.position);
  }
  SKERRY_CHECK(positions.empty() || *positions.rbegin() + 1 == positions.size(),
               "positions are no permutation");
}

// From the first byte to the last, chunk after chunk.
void check_layout(const Layout& layout) {
  std::uint64_t offset = layout.prefix.size();
  for (const Placement& placement : layout.placements) {
    SKERRY_CHECK(placement.offset == offset, "a hole before a chunk at ", placement.offset);
    SKERRY_CHECK(placement.chunk.bytes <= kMaxChunkBytes, "a chunk of ", placement.chunk.bytes,
                 " bytes");
    offset += placement.chunk.bytes;
  }
  SKERRY_CHECK(offset == layout.total_bytes, "chunks end at ", offset, " of ", layout.total_bytes);
}

}  // namespace

Verdict manifest(std::string_view input) {
  const auto decoded = decode_manifest(std::string(input));
  if (!decoded) return Verdict::kRefused;
  check_positions(decoded->manifest);
  SKERRY_CHECK(distinct_chunks(decoded->manifest).size() * Hash::kBytes <= input.size(),
               "chunks out of nothing");
  const auto encoded = encode_manifest(decoded->manifest);
  SKERRY_CHECK(encoded.has_value(), "refused when encoded again: ", encoded.error().message);
  const auto again = decode_manifest(encoded->encoded);
  SKERRY_CHECK(
      again.has_value() && again->manifest == decoded->manifest && again->name == encoded->name,
      "differs when encoded again");
  if (decoded->manifest.kind == ManifestKind::kFile) {
    check_layout(file_layout(decoded->manifest));
  } else if (const auto layout = safetensors_layout(decoded->manifest)) {
    check_layout(*layout);
    SKERRY_CHECK(parse_safetensors_header(layout->prefix, layout->total_bytes).has_value(),
                 "no safetensors file");
  }
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
