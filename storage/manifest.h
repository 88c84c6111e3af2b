// SPDX-License-Identifier: Apache-2.0
// A manifest describes an object, a checkpoint or a file, by the hashes of its
// chunks; its own hash is the object's name. Values only.
// ON FAILURE: decoding checks all bytes first. Bytes that are no manifest or
// contradict themselves give kCorrupt. A version that this program does not
// know gives kInvalid.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/safetensors.h"
#include "storage/store.h"

namespace skerry::storage {

// A manifest travels as one chunk.
inline constexpr std::size_t kMaxManifestBytes = kMaxChunkBytes;
inline constexpr std::size_t kMaxTensors = 20'000;
inline constexpr std::size_t kMaxDimensions = 16;

// of a checkpoint: the weights that an ensemble needs
inline constexpr std::string_view kPartEma = "ema";
// of a checkpoint: the rest, which training needs
inline constexpr std::string_view kPartState = "state";
inline constexpr std::string_view kPartFile = "file";  // of a file: its bytes

enum class ManifestKind { kCheckpoint, kFile };

struct Chunk {
  Hash hash;
  std::uint32_t bytes = 0;  // 1 … kMaxChunkBytes
  auto operator<=>(const Chunk&) const = default;
};

struct ManifestTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint32_t position = 0;  // in the original file, over all parts
  std::vector<Chunk> chunks;
  auto operator<=>(const ManifestTensor&) const = default;
};

struct ManifestPart {
  std::string name;
  std::vector<ManifestTensor> tensors;  // of a checkpoint
  std::vector<Chunk> chunks;            // of a file
  auto operator<=>(const ManifestPart&) const = default;
};

struct Manifest {
  ManifestKind kind = ManifestKind::kFile;
  std::string name;  // of a file: no folder in it
  // Of a checkpoint:
  RunId run;
  ExpertIndex expert = 0;
  Step step = 0;
  Step from_step = 0;
  Epoch epoch;
  std::uint32_t attempt = 0;
  std::optional<Hash> parent;
  std::string fingerprint;  // of the engine that made it
  std::optional<Hash> spec;
  std::map<std::string, std::string> metadata;
  std::vector<ManifestPart> parts;

  const ManifestPart* part(std::string_view part_name) const;  // null if there is none
  std::uint64_t bytes() const;  // of all parts; counts repeated chunks repeatedly
  bool operator==(const Manifest&) const = default;
};

// A checked manifest with its encoded bytes; their hash is its name.
struct NamedManifest {
  Hash name;
  std::string encoded;
  Manifest manifest;
};

// Equal manifests give equal bytes. Refuses what decode_manifest() would
// refuse.
Result<NamedManifest> encode_manifest(Manifest manifest);
Result<NamedManifest> decode_manifest(std::string encoded);

// RETURNS: every chunk of these parts once (no parts: of all), in order of
// first appearance.
std::vector<Chunk> distinct_chunks(const Manifest& manifest,
                                   const std::vector<std::string>& parts = {});

}  // namespace skerry::storage
