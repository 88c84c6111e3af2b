// SPDX-License-Identifier: Apache-2.0
// Where an object's chunks lie in a file: how manifests are built from files,
// and files from manifests. Failure rule: as files.h; kCorrupt where a source
// gives wrong bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/manifest.h"
#include "storage/safetensors.h"

namespace skerry::storage {

struct Placement {
  std::uint64_t offset = 0;
  Chunk chunk;
};

struct Layout {
  std::string prefix;  // the bytes before the first chunk
  std::vector<Placement>
      placements;  // in order of offset, without gaps; one chunk may stand at several
  std::uint64_t total_bytes = 0;
};

// A file's bytes as they were. REQUIRES: kind is kFile.
Layout file_layout(const Manifest& manifest);
// How an object lies in a file: a file as it was, a checkpoint as the
// safetensors file of all its parts.
Result<Layout> layout_of(const Manifest& manifest);
// A checkpoint as a safetensors file of these parts (none: all), in the order
// of the file that it was made from; all parts give that file byte for byte if
// this library wrote it. REQUIRES: kind is kCheckpoint.
Result<Layout> safetensors_layout(const Manifest& manifest,
                                  const std::vector<std::string>& parts = {});

// The manifest of a checkpoint in memory: `facts` with its parts and metadata
// filled in. Every tensor named ema/… is part "ema", the rest part "state";
// chunks never span tensors.
// A sink gets each chunk, a view into `tensors`, as soon as its hash is known:
// on any thread, several at once, equal ones as often as they stand there.
using ChunkSink = std::function<Result<void>(const Hash& hash, std::string_view bytes)>;
Result<NamedManifest> build_checkpoint_manifest(const Safetensors& tensors, Manifest facts,
                                                const ChunkSink& sink = {});
// The manifest of a file on disk; `name` is what others will see.
Result<NamedManifest> build_file_manifest(const std::string& path, const std::string& name);

// The bytes of each, in their order. Any thread, many at once. What it gives
// has these hashes, else it fails: ObjectStore::read_each looks. It is asked
// for kChunksAtOnce at most.
using ChunkSource = std::function<Result<std::vector<std::string>>(std::span<const Hash> hashes)>;
// Enough for the lanes of blake2b_each(), and no more than 16 MiB in memory for
// each thread of in_parallel().
constexpr std::size_t kChunksAtOnce = 4;

// work(group) for all of them, kChunksAtOnce at a time, on many processors.
Result<void> in_groups(std::span<const Hash> chunks,
                       const std::function<Result<void>(std::span<const Hash>)>& work);

// Gives each distinct chunk once, from the tensors that the manifest was built
// from.
Result<void> for_each_chunk(const Manifest& manifest, const Safetensors& tensors,
                            const ChunkSink& sink);

// Writes the whole file to a descriptor from its offset 0, chunks in no order.
// Only their lengths are checked here.
Result<void> assemble(const Layout& layout, const ChunkSource& source, int descriptor,
                      const std::string& shown_as);
// The same to PATH, which appears only when it is whole.
Result<void> assemble_file(const Layout& layout, const ChunkSource& source,
                           const std::string& path);

}  // namespace skerry::storage
