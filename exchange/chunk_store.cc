// SPDX-License-Identifier: Apache-2.0
#include "exchange/chunk_store.h"

#include <filesystem>

#include "base/text.h"

namespace skerry::exchange {
namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

Result<storage::Layout> layout_of(const storage::Manifest& manifest,
                                  const std::vector<std::string>& parts) {
  if (manifest.kind == storage::ManifestKind::kFile) return storage::file_layout(manifest);
  return storage::safetensors_layout(manifest, parts);
}

}  // namespace

Answer refuse(const Job& job, const Error& error) {
  return std::visit(
      Overloaded{[&](const OpenObject& open) -> Answer {
                   return ObjectOpened{open.object.name, error};
                 },
                 [&](const WriteChunk& write) -> Answer {
                   return ChunkWritten{write.object, write.chunk, error};
                 },
                 [&](const SealObject& seal) -> Answer {
                   return ObjectSealed{seal.object, error};
                 },
                 [&](const ReadChunk& read) -> Answer {
                   return ChunkRead{read.peer, read.request, read.object, read.chunk, error};
                 },
                 [&](const FindObject& find) -> Answer {
                   return ObjectFound{find.peer, find.object, error};
                 }},
      job);
}

Answer perform(ChunkStore& chunk_store, const Job& job) {
  return std::visit(
      Overloaded{[&](const OpenObject& open) -> Answer {
                   return ObjectOpened{open.object.name, chunk_store.open(open.object, open.parts)};
                 },
                 [&](const WriteChunk& write) -> Answer {
                   return ChunkWritten{write.object, write.chunk,
                                       chunk_store.write(write.object, write.chunk, write.bytes)};
                 },
                 [&](const SealObject& seal) -> Answer {
                   return ObjectSealed{seal.object, chunk_store.seal(seal.object)};
                 },
                 [&](const ReadChunk& read) -> Answer {
                   return ChunkRead{read.peer, read.request, read.object, read.chunk,
                                    chunk_store.read(read.object, read.chunk)};
                 },
                 [&](const FindObject& find) -> Answer {
                   return ObjectFound{find.peer, find.object, chunk_store.find(find.object)};
                 }},
      job);
}

Result<std::vector<Hash>> ObjectChunkStore::open(const storage::NamedManifest& object,
                                                 const std::vector<std::string>& parts) {
  if (!parts.empty()) return fail(ErrorCode::kInvalid, "objects are kept whole here");
  return objects_.begin(object);
}

Result<void> ObjectChunkStore::write(const Hash& object, const Hash& chunk,
                                     std::string_view bytes) {
  return objects_.put(object, chunk, bytes);
}

Result<void> ObjectChunkStore::seal(const Hash& object) { return objects_.seal(object); }

Result<std::string> ObjectChunkStore::read(const Hash& object, const Hash& chunk) {
  return objects_.has(object) ? objects_.read(object, chunk)
                              : objects_.read_received(object, chunk);
}

Result<void> ObjectChunkStore::find(const Hash& object) {
  if (objects_.has(object)) return {};
  return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not here"));
}

std::string FolderChunkStore::path_of(const Hash& object) const {
  return folder_ + "/" + object.hex();
}

Result<void> FolderChunkStore::offer(const storage::NamedManifest& object,
                                     const std::string& path) {
  ASSIGN_OR_RETURN(storage::Layout layout, layout_of(object.manifest, {}));
  offered_[object.name] = {object.encoded, path, std::move(layout)};
  return {};
}

Result<std::vector<Hash>> FolderChunkStore::open(const storage::NamedManifest& object,
                                                 const std::vector<std::string>& parts) {
  const std::vector<storage::Chunk> chunks = storage::distinct_chunks(object.manifest, parts);
  std::vector<Hash> present;
  if (std::filesystem::exists(path_of(object.name))) {
    for (const storage::Chunk& chunk : chunks) present.push_back(chunk.hash);
    return present;
  }
  ASSIGN_OR_RETURN(storage::Layout layout, layout_of(object.manifest, parts));
  ASSIGN_OR_RETURN(storage::ChunkWriter writer,
                   storage::ChunkWriter::open(path_of(object.name), std::move(layout)));
  Receiving receiving;
  receiving.manifest = object.encoded;
  receiving.writer = std::make_unique<storage::ChunkWriter>(std::move(writer));
  present = receiving.writer->present();
  for (const storage::Chunk& chunk : chunks) receiving.missing.insert(chunk.hash);
  for (const Hash& hash : present) receiving.missing.erase(hash);
  receiving_[object.name] = std::move(receiving);
  return present;
}

Result<void> FolderChunkStore::write(const Hash& object, const Hash& chunk,
                                     std::string_view bytes) {
  const auto found = receiving_.find(object);
  if (found == receiving_.end())
    return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not open"));
  TRY(found->second.writer->put(chunk, bytes));
  found->second.missing.erase(chunk);
  return {};
}

Result<void> FolderChunkStore::seal(const Hash& object) {
  const auto found = receiving_.find(object);
  if (found == receiving_.end()) {
    if (std::filesystem::exists(path_of(object))) return {};
    return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not open"));
  }
  if (!found->second.missing.empty()) {
    return fail(ErrorCode::kConflict, text("object ", object.short_hex(), " lacks ",
                                           found->second.missing.size(), " chunks"));
  }
  TRY(found->second.writer->commit());
  receiving_.erase(found);
  return {};
}

Result<void> FolderChunkStore::find(const Hash& object) {
  if (offered_.contains(object)) return {};
  return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not offered"));
}

Result<std::string> FolderChunkStore::read(const Hash& object, const Hash& chunk) {
  if (const auto open = receiving_.find(object); open != receiving_.end()) {
    if (chunk == object) return open->second.manifest;
    return open->second.writer->read(chunk);
  }
  const auto found = offered_.find(object);
  if (found == offered_.end())
    return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not offered"));
  if (chunk == object) return found->second.manifest;
  if (!reader_.second || reader_.first != object) {
    ASSIGN_OR_RETURN(storage::ChunkReader opened,
                     storage::ChunkReader::open(found->second.path, found->second.layout));
    reader_ = {object, std::make_unique<storage::ChunkReader>(std::move(opened))};
  }
  return reader_.second->read(chunk);
}

}  // namespace skerry::exchange
