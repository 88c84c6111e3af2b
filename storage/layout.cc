// SPDX-License-Identifier: Apache-2.0
#include "storage/layout.h"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "base/check.h"
#include "base/hash_each.h"
#include "base/parallel.h"
#include "base/text.h"
#include "storage/files.h"

namespace skerry::storage {
namespace {

// work(group) for all of `items`, kChunksAtOnce at a time, on many processors.
template <class Item, class Work>
Result<void> each_group(std::span<const Item> items, const Work& work) {
  return in_parallel((items.size() + kChunksAtOnce - 1) / kChunksAtOnce, [&](std::size_t i) {
    const std::size_t first = i * kChunksAtOnce;
    return work(items.subspan(first, std::min(kChunksAtOnce, items.size() - first)));
  });
}

// name() hashes the chunks later, so that a checkpoint's tensors share the
// processors.
class Cutter {
 public:
  // REQUIRES: `chunks` stays where it is until name().
  void cut(std::string_view bytes, std::vector<Chunk>& chunks) {
    while (!bytes.empty()) {
      const std::string_view piece = bytes.substr(0, kMaxChunkBytes);
      pieces_.push_back({piece, &chunks, chunks.size()});
      chunks.push_back({Hash{}, static_cast<std::uint32_t>(piece.size())});
      bytes.remove_prefix(piece.size());
    }
  }

  Result<void> name(const ChunkSink& sink = {}) {
    return each_group(std::span<const Piece>(pieces_),
                      [&](std::span<const Piece> group) -> Result<void> {
                        std::vector<std::string_view> bytes;
                        for (const Piece& piece : group) bytes.push_back(piece.bytes);
                        const std::vector<Hash> hashes = blake2b_each(bytes);
                        for (std::size_t i = 0; i < group.size(); ++i) {
                          (*group[i].chunks)[group[i].index].hash = hashes[i];
                          if (sink) TRY(sink(hashes[i], group[i].bytes));
                        }
                        return {};
                      });
  }

 private:
  struct Piece {
    std::string_view bytes;
    std::vector<Chunk>* chunks;
    std::size_t index;
  };
  std::vector<Piece> pieces_;
};

void place(const std::vector<Chunk>& chunks, Layout& layout) {
  for (const Chunk& chunk : chunks) {
    layout.placements.push_back({layout.total_bytes, chunk});
    layout.total_bytes += chunk.bytes;
  }
}

bool is_ema(std::string_view name) { return name.starts_with("ema/"); }

}  // namespace

Layout file_layout(const Manifest& manifest) {
  SKERRY_CHECK(manifest.kind == ManifestKind::kFile, "only a file has its own layout");
  Layout layout;
  place(manifest.parts.front().chunks, layout);
  return layout;
}

Result<Layout> layout_of(const Manifest& manifest) {
  if (manifest.kind == ManifestKind::kCheckpoint) return safetensors_layout(manifest);
  return file_layout(manifest);
}

Result<Layout> safetensors_layout(const Manifest& manifest, const std::vector<std::string>& parts) {
  SKERRY_CHECK(manifest.kind == ManifestKind::kCheckpoint, "only a checkpoint has tensors");
  std::vector<const ManifestTensor*> tensors;
  for (const ManifestPart& part : manifest.parts) {
    if (!parts.empty() && std::find(parts.begin(), parts.end(), part.name) == parts.end()) continue;
    for (const ManifestTensor& tensor : part.tensors) tensors.push_back(&tensor);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto* a, const auto* b) { return a->position < b->position; });
  std::vector<TensorView> views;
  for (const ManifestTensor* tensor : tensors)
    views.push_back({tensor->name, tensor->dtype, tensor->shape, {}});
  Layout layout;
  ASSIGN_OR_RETURN(layout.prefix, safetensors_header(views, manifest.metadata));
  layout.total_bytes = layout.prefix.size();
  for (const ManifestTensor* tensor : tensors) place(tensor->chunks, layout);
  return layout;
}

Result<NamedManifest> build_checkpoint_manifest(const Safetensors& tensors, Manifest facts,
                                                const ChunkSink& sink) {
  facts.kind = ManifestKind::kCheckpoint;
  facts.metadata = tensors.header().metadata;
  facts.parts = {{std::string(kPartEma), {}, {}}, {std::string(kPartState), {}, {}}};
  std::uint32_t position = 0;
  for (const TensorInfo& info : tensors.header().tensors) {
    ManifestPart& part = facts.parts[is_ema(info.name) ? 0 : 1];
    part.tensors.push_back({info.name, info.dtype, info.shape, position++, {}});
  }
  Cutter cutter;
  for (ManifestPart& part : facts.parts) {
    for (ManifestTensor& tensor : part.tensors) {
      ASSIGN_OR_RETURN(const TensorView view, tensors.tensor(tensor.name));
      cutter.cut(view.data, tensor.chunks);
    }
  }
  TRY(cutter.name(sink));
  return encode_manifest(std::move(facts));
}

Result<NamedManifest> build_file_manifest(const std::string& path, const std::string& name) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  Manifest manifest;
  manifest.kind = ManifestKind::kFile;
  manifest.name = name;
  manifest.parts.push_back({std::string(kPartFile), {}, {}});
  Cutter cutter;
  cutter.cut(file.bytes(), manifest.parts.front().chunks);
  TRY(cutter.name());
  return encode_manifest(std::move(manifest));
}

Result<void> in_groups(std::span<const Hash> chunks,
                       const std::function<Result<void>(std::span<const Hash>)>& work) {
  return each_group(chunks, work);
}

Result<void> for_each_chunk(const Manifest& manifest, const Safetensors& tensors,
                            const ChunkSink& sink) {
  std::unordered_set<Hash> seen;
  for (const ManifestPart& part : manifest.parts) {
    for (const ManifestTensor& tensor : part.tensors) {
      ASSIGN_OR_RETURN(const TensorView view, tensors.tensor(tensor.name));
      std::string_view rest = view.data;
      for (const Chunk& chunk : tensor.chunks) {
        SKERRY_CHECK(chunk.bytes <= rest.size(), "tensor ", tensor.name,
                     " is not what the manifest was built from");
        if (seen.insert(chunk.hash).second) TRY(sink(chunk.hash, rest.substr(0, chunk.bytes)));
        rest.remove_prefix(chunk.bytes);
      }
    }
  }
  return {};
}

Result<void> assemble(const Layout& layout, const ChunkSource& source, int descriptor,
                      const std::string& shown_as) {
  TRY(write_at(descriptor, 0, layout.prefix, shown_as));
  return each_group(
      std::span(layout.placements), [&](std::span<const Placement> group) -> Result<void> {
        std::vector<Hash> hashes;
        for (const Placement& placement : group) hashes.push_back(placement.chunk.hash);
        ASSIGN_OR_RETURN(const std::vector<std::string> chunks, source(hashes));
        for (std::size_t i = 0; i < group.size(); ++i) {
          if (chunks[i].size() != group[i].chunk.bytes) {
            return fail(ErrorCode::kCorrupt,
                        text("chunk ", hashes[i].short_hex(), " for ", shown_as, " is damaged"));
          }
          TRY(write_at(descriptor, group[i].offset, chunks[i], shown_as));
        }
        return {};
      });
}

Result<void> assemble_file(const Layout& layout, const ChunkSource& source,
                           const std::string& path) {
  ASSIGN_OR_RETURN(PartialFile file, PartialFile::create(path));
  TRY(assemble(layout, source, file.file().descriptor(), path));
  return file.commit();
}

}  // namespace skerry::storage
