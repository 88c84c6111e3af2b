// SPDX-License-Identifier: Apache-2.0
// Where an object's chunks lie in a file: builds manifests from files, and
// files from manifests.
// ON FAILURE: as files.h; kCorrupt if a source returns wrong bytes.
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
  // in order of offset, without gaps; one chunk may appear several times
  std::vector<Placement> placements;
  std::uint64_t total_bytes = 0;
};

// The layout of a file's original bytes.
// REQUIRES: kind is kFile.
Layout file_layout(const Manifest& manifest);
// How an object lies in a file: a file as it was, a checkpoint as the
// safetensors file of all its parts.
Result<Layout> layout_of(const Manifest& manifest);
// A checkpoint as a safetensors file of these parts (none: all), in the order
// of the file that it came from. All parts give that file byte for byte, if
// this library wrote it.
// REQUIRES: kind is kCheckpoint.
Result<Layout> safetensors_layout(const Manifest& manifest,
                                  const std::vector<std::string>& parts = {});

// The manifest of a checkpoint in memory: `facts` with its parts and metadata
// filled in. Every tensor named ema/… belongs to part "ema", the rest to part
// "state". Chunks never span tensors.
// A sink gets each chunk, a view into `tensors`, as soon as its hash is known.
// Equal chunks reach it once for each occurrence.
// THREADS: a sink runs on any thread, several calls at once.
using ChunkSink = std::function<Result<void>(const Hash& hash, std::string_view bytes)>;
Result<NamedManifest> build_checkpoint_manifest(const Safetensors& tensors, Manifest facts,
                                                const ChunkSink& sink = {});
// The manifest of a file on disk; `name` is the name that others see.
Result<NamedManifest> build_file_manifest(const std::string& path, const std::string& name);

// RETURNS: the bytes of each chunk, in order, with these hashes; otherwise it
// fails (ObjectStore::read_each checks). Each call names at most kChunksAtOnce.
// THREADS: any, many at once.
using ChunkSource = std::function<Result<std::vector<std::string>>(std::span<const Hash> hashes)>;
// Fills the lanes of blake2b_each(), and takes at most 16 MiB for each thread
// of in_parallel().
constexpr std::size_t kChunksAtOnce = 4;

// Runs work(group) for all of them, kChunksAtOnce at a time, on many
// processors.
Result<void> in_groups(std::span<const Hash> chunks,
                       const std::function<Result<void>(std::span<const Hash>)>& work);

// Passes each distinct chunk once, from the tensors that the manifest was built
// from.
Result<void> for_each_chunk(const Manifest& manifest, const Safetensors& tensors,
                            const ChunkSink& sink);

// Writes the whole file to a descriptor from its offset 0, chunks in no order.
// Checks only their lengths.
Result<void> assemble(const Layout& layout, const ChunkSource& source, int descriptor,
                      const std::string& shown_as);
// The same to PATH, which appears only when it is complete.
Result<void> assemble_file(const Layout& layout, const ChunkSource& source,
                           const std::string& path);

}  // namespace skerry::storage
