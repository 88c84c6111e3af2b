// SPDX-License-Identifier: Apache-2.0
#include "storage/object_store.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"

namespace skerry::storage {
namespace {

constexpr std::string_view kWholePrefix = "object/";
constexpr std::string_view kPartialPrefix = "partial/";
constexpr std::size_t kMaxOpenReaders = 32;
constexpr std::string_view kPartialSuffix = ".partial";

std::string whole_key(const Hash& object) { return std::string(kWholePrefix) + object.hex(); }
std::string partial_key(const Hash& object) { return std::string(kPartialPrefix) + object.hex(); }

// Named by the attempt that made it and the bytes that it holds: two epochs can
// produce the same round.
FamilyName family_of(const Manifest& facts, const Hash& name) {
  return FamilyName(text("ckpt-", facts.run, "-", facts.expert, "-", facts.step, "-",
                         facts.epoch.value(), "-", facts.attempt, "-", name.short_hex()));
}

ObjectInfo info_of(const NamedManifest& named) {
  ObjectInfo info{named.name, named.manifest.kind, named.encoded.size(), named.manifest.bytes(),
                  named.manifest};
  info.facts.parts.clear();
  return info;
}

}  // namespace

struct ObjectStore::Object {
  ObjectInfo info;
  std::atomic<State> state = State::kPartial;
  std::optional<FamilyName> family;  // of a checkpoint in the store; nothing: a file
  std::unordered_set<Hash> missing;  // while it is being received, once begun in this life
  // Of a file that is being received. The store's mutex guards it; a read keeps
  // it alive.
  std::shared_ptr<ChunkWriter> writer;
  std::atomic<bool> begun = false;
};

Result<std::unique_ptr<ObjectStore>> ObjectStore::open(Store& store, const std::string& folder,
                                                       Checkpoints checkpoints, Files& files) {
  TRY(files.create_folder(folder));
  std::unique_ptr<ObjectStore> objects(new ObjectStore(store, files, folder, checkpoints));
  TRY(objects->load(kPartialPrefix, State::kPartial));
  TRY(objects->load(kWholePrefix, State::kWhole));
  TRY(objects->notice_what_is_gone());
  TRY(objects->drop_unnamed());
  return objects;
}

Result<std::unique_ptr<const ObjectStore>> ObjectStore::view(Store& store,
                                                             const std::string& folder,
                                                             Checkpoints checkpoints,
                                                             Files& files) {
  std::unique_ptr<ObjectStore> objects(new ObjectStore(store, files, folder, checkpoints));
  TRY(objects->load(kPartialPrefix, State::kPartial));
  TRY(objects->load(kWholePrefix, State::kWhole));
  return std::unique_ptr<const ObjectStore>(std::move(objects));
}

// A later write or sync of the file could succeed although earlier bytes are
// lost.
template <class T>
Result<T> ObjectStore::noted(Result<T> outcome) {
  if (!outcome && outcome.error().code == ErrorCode::kIo) store_.note_failure(outcome.error());
  return outcome;
}

Result<void> ObjectStore::load(std::string_view prefix, State state) {
  ASSIGN_OR_RETURN(std::vector<Entry> entries, store_.scan(prefix));
  for (Entry& entry : entries) {
    ASSIGN_OR_RETURN(const NamedManifest named, decode_manifest(std::move(entry.value)));
    if (entry.key != std::string(prefix) + named.name.hex()) {
      return fail(ErrorCode::kCorrupt,
                  text("the manifest under ", entry.key, " is damaged; restore from a backup"));
    }
    objects_[named.name] = make_object(named, state);
  }
  return {};
}

ObjectStore::ObjectPtr ObjectStore::make_object(const NamedManifest& named, State state) const {
  auto object = std::make_shared<Object>();
  object->info = info_of(named);
  object->state = state;
  if (named.manifest.kind == ManifestKind::kCheckpoint && checkpoints_ == Checkpoints::kInStore)
    object->family = family_of(named.manifest, named.name);
  return object;
}

Result<void> ObjectStore::notice_what_is_gone() {
  for (const auto& [name, object] : objects_) {
    if (object->state != State::kWhole) continue;
    const bool is_there =
        object->family ? store_.has_family(*object->family) : files_.exists(path_to(name));
    if (!is_there) TRY(become_partial(*object));
  }
  return {};
}

Result<void> ObjectStore::become_partial(Object& object) {
  const Hash& name = object.info.name;
  log_warning("an object is damaged on disk", {{"object", name.short_hex()}});
  ASSIGN_OR_RETURN(const NamedManifest named, manifest(name));
  TRY(store_.write({{partial_key(name), named.encoded}, {whole_key(name), std::nullopt}}));
  object.state = State::kPartial;
  object.begun = false;
  const std::lock_guard lock(mutex_);
  readers_.remove_if([&](const auto& reader) { return reader.first == name; });
  return {};
}

Result<void> ObjectStore::drop_unnamed() {
  std::set<FamilyName> families;
  std::set<std::string> files;
  for (const auto& [name, object] : objects_) {
    if (object->family) families.insert(*object->family);
    files.insert(name.hex());
    if (object->state == State::kPartial) files.insert(name.hex() + std::string(kPartialSuffix));
  }
  for (const FamilyName& family : store_.families()) {
    if (families.contains(family)) continue;
    log_info("dropping chunks that no manifest names", {{"family", family}});
    TRY(store_.drop_family(family));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.list(folder_));
  for (const std::string& name : names) {
    if (files.contains(name)) continue;
    const std::string path = folder_ + "/" + name;
    log_info("removing a file that no manifest names", {{"file", path}});
    TRY(files_.remove(path));
  }
  return {};
}

// A file that has its final name but no commit marker: a crash came in between,
// or the file was damaged.
Result<void> ObjectStore::take_back(const std::string& path) {
  const std::string partial = path + std::string(kPartialSuffix);
  if (files_.exists(partial) || !files_.exists(path)) return {};
  return files_.rename(path, partial);
}

Result<ObjectStore::ObjectPtr> ObjectStore::find(const Hash& object) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  if (found == objects_.end())
    return fail(ErrorCode::kNotFound, text("no object ", object.short_hex()));
  return found->second;
}

Result<ObjectStore::ObjectPtr> ObjectStore::find_partial(const Hash& object) const {
  ASSIGN_OR_RETURN(ObjectPtr found, find(object));
  if (found->state != State::kPartial || !found->begun) {
    return fail(ErrorCode::kNotFound,
                text("object ", object.short_hex(), " is not being received"));
  }
  return found;
}

std::string ObjectStore::path_to(const Hash& object) const { return folder_ + "/" + object.hex(); }

// A file that was found damaged keeps its name until its transfer begins again.
std::string ObjectStore::path_to_bytes(const Object& object) const {
  const std::string path = path_to(object.info.name);
  const std::string partial = path + std::string(kPartialSuffix);
  return object.state == State::kPartial && files_.exists(partial) ? partial : path;
}

std::vector<ObjectInfo> ObjectStore::list_in(State state) const {
  const std::lock_guard lock(mutex_);
  std::vector<ObjectInfo> listed;
  for (const auto& [name, object] : objects_) {
    if (object->state == state) listed.push_back(object->info);
  }
  return listed;
}

std::vector<ObjectInfo> ObjectStore::list() const { return list_in(State::kWhole); }
std::vector<ObjectInfo> ObjectStore::partials() const { return list_in(State::kPartial); }

void ObjectStore::each(const std::function<void(const ObjectInfo&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, object] : objects_) {
    if (object->state == State::kWhole) visit(object->info);
  }
}

bool ObjectStore::has(const Hash& object) const {
  const auto found = find(object);
  return found.has_value() && (*found)->state == State::kWhole;
}

Result<ObjectInfo> ObjectStore::info(const Hash& object) const {
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  return found->info;
}

Result<NamedManifest> ObjectStore::manifest(const Hash& object) const {
  return manifest_at(whole_key(object), object);
}

Result<NamedManifest> ObjectStore::known_manifest(const Hash& object) const {
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  return manifest_at(found->state == State::kWhole ? whole_key(object) : partial_key(object),
                     object);
}

// To serve it, nobody needs to read it.
Result<std::string> ObjectStore::encoded_manifest(const std::string& key,
                                                  const Hash& object) const {
  ASSIGN_OR_RETURN(auto encoded, store_.get(key));
  if (!encoded) return fail(ErrorCode::kNotFound, text("no object ", object.short_hex()));
  if (blake2b(*encoded) != object)
    return fail(ErrorCode::kCorrupt, text("manifest ", object.short_hex(), " is damaged on disk"));
  return std::move(*encoded);
}

Result<NamedManifest> ObjectStore::manifest_at(const std::string& key, const Hash& object) const {
  ASSIGN_OR_RETURN(auto encoded, store_.get(key));
  if (!encoded) return fail(ErrorCode::kNotFound, text("no object ", object.short_hex()));
  ASSIGN_OR_RETURN(NamedManifest named, decode_manifest(std::move(*encoded)));
  if (named.name != object)
    return fail(ErrorCode::kCorrupt, text("manifest ", object.short_hex(), " is damaged on disk"));
  return named;
}

Result<std::vector<Hash>> ObjectStore::begin(const NamedManifest& named) {
  const std::vector<Chunk> chunks = distinct_chunks(named.manifest);
  std::vector<Hash> present;
  if (has(named.name)) {
    for (const Chunk& chunk : chunks) present.push_back(chunk.hash);
    return present;
  }
  auto known = find(named.name);
  if (!known) {
    // The key first: the next start keeps what a key names and drops everything
    // else.
    TRY(store_.write({{partial_key(named.name), named.encoded}}));
    ObjectPtr fresh = make_object(named, State::kPartial);
    const std::lock_guard lock(mutex_);
    known = objects_.emplace(named.name, std::move(fresh)).first->second;
  }
  Object& object = **known;
  Layout layout;  // of a file
  if (object.family) {
    if (!store_.has_family(*object.family)) TRY(store_.create_family(*object.family));
    ASSIGN_OR_RETURN(present, store_.chunks(*object.family));
  } else {
    ASSIGN_OR_RETURN(layout, layout_of(named.manifest));
    if (!object.writer) {
      TRY(noted(take_back(path_to(named.name))));
      ASSIGN_OR_RETURN(ChunkWriter writer,
                       noted(ChunkWriter::open(path_to(named.name), layout, files_)));
      auto opened = std::make_shared<ChunkWriter>(std::move(writer));
      const std::lock_guard lock(mutex_);
      object.writer = std::move(opened);
    }
    present = object.writer->present();
  }
  object.missing.clear();
  for (const Chunk& chunk : chunks) object.missing.insert(chunk.hash);
  for (const Hash& hash : present) object.missing.erase(hash);
  std::size_t lacking = 0;
  const auto count = [&](const Chunk& chunk) {
    lacking += object.missing.contains(chunk.hash) ? chunk.bytes : 0;
  };
  if (object.family) {
    std::for_each(chunks.begin(), chunks.end(), count);
  } else {
    // Equal chunks each go to their own place.
    for (const Placement& placement : layout.placements) count(placement.chunk);
  }
  if (lacking > 0) TRY(store_.has_room(lacking, false));
  object.begun = true;
  return present;
}

Result<void> ObjectStore::put(const Hash& object, const Hash& chunk, std::string_view bytes) {
  ASSIGN_OR_RETURN(const ObjectPtr found, find_partial(object));
  if (found->writer) {
    TRY(store_.has_room(bytes.size(), false));
    TRY(noted(found->writer->put(chunk, bytes)));
  } else {
    TRY(store_.put_chunk(*found->family, chunk, bytes));
  }
  found->missing.erase(chunk);
  return {};
}

Result<void> ObjectStore::flush(const Hash& object) {
  ASSIGN_OR_RETURN(const ObjectPtr found, find_partial(object));
  if (found->writer) return {};  // a file's chunks are hashed again after a restart
  return store_.flush(*found->family);
}

Result<void> ObjectStore::seal(const Hash& object) {
  if (has(object)) return {};
  ASSIGN_OR_RETURN(const ObjectPtr found, find_partial(object));
  if (!found->missing.empty()) {
    return fail(ErrorCode::kConflict,
                text("object ", object.short_hex(), " lacks ", found->missing.size(), " chunks"));
  }
  if (found->writer) {
    TRY(noted(found->writer->commit()));
    // If a full disk refuses the marker, begin() takes the file back as it
    // does after a crash.
    const std::lock_guard lock(mutex_);
    found->writer.reset();
    found->begun = false;
  } else {
    TRY(store_.flush(*found->family));
  }
  ASSIGN_OR_RETURN(auto encoded, store_.get(partial_key(object)));
  SKERRY_CHECK(encoded.has_value(), "an object that is being received has its key");
  TRY(store_.write({{whole_key(object), std::move(encoded)}, {partial_key(object), std::nullopt}}));
  found->state = State::kWhole;
  return {};
}

Result<std::shared_ptr<ChunkReader>> ObjectStore::reader_of(const Object& object) const {
  const Hash& name = object.info.name;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(readers_.begin(), readers_.end(),
                                    [&](const auto& r) { return r.first == name; });
    if (found != readers_.end()) {
      readers_.splice(readers_.begin(), readers_, found);
      return readers_.front().second;
    }
  }
  ASSIGN_OR_RETURN(const NamedManifest named, known_manifest(name));
  ASSIGN_OR_RETURN(const Layout layout, layout_of(named.manifest));
  ASSIGN_OR_RETURN(ChunkReader opened, ChunkReader::open(path_to_bytes(object), layout, files_));
  auto reader = std::make_shared<ChunkReader>(std::move(opened));
  const std::lock_guard lock(mutex_);
  readers_.emplace_front(name, reader);
  if (readers_.size() > kMaxOpenReaders) readers_.pop_back();
  return reader;
}

Result<std::string> ObjectStore::read(const Hash& object, const Hash& chunk) const {
  if (chunk == object) return encoded_manifest(whole_key(object), object);
  ASSIGN_OR_RETURN(std::vector<std::string> bytes, read_each(object, {&chunk, 1}));
  return std::move(bytes.front());
}

Result<std::vector<std::string>> ObjectStore::read_each(const Hash& object,
                                                        std::span<const Hash> chunks) const {
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  if (found->state != State::kWhole)
    return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not whole"));
  if (found->family) return store_.get_chunks(*found->family, chunks);
  ASSIGN_OR_RETURN(const auto reader, reader_of(*found));
  return reader->read_each(chunks);
}

Result<std::string> ObjectStore::salvage(const Hash& object, const Hash& chunk) const {
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  if (found->family) return store_.get_chunk(*found->family, chunk);
  ASSIGN_OR_RETURN(const auto reader, reader_of(*found));
  return reader->read(chunk);
}

Result<std::string> ObjectStore::read_received(const Hash& object, const Hash& chunk) const {
  ASSIGN_OR_RETURN(const ObjectPtr found, find_partial(object));
  if (chunk == object) return encoded_manifest(partial_key(object), object);
  if (found->family) return store_.get_chunk(*found->family, chunk);
  std::shared_ptr<ChunkWriter> writer;
  {
    const std::lock_guard lock(mutex_);
    writer = found->writer;
  }
  if (!writer)
    return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not open any more"));
  return writer->read(chunk);
}

Result<std::string> ObjectStore::path_of(const Hash& object) const {
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  if (found->state != State::kWhole)
    return fail(ErrorCode::kNotFound, text("object ", object.short_hex(), " is not whole"));
  if (found->family) return fail(ErrorCode::kInvalid, "a checkpoint in the store has no file");
  return path_to(object);
}

Result<std::unique_ptr<File>> ObjectStore::open_file(const Hash& object) const {
  ASSIGN_OR_RETURN(const std::string path, path_of(object));
  return files_.open(path, Files::Open::kRead);
}

Result<void> ObjectStore::check(const Hash& object) const {
  ASSIGN_OR_RETURN(const NamedManifest named, manifest(object));
  ASSIGN_OR_RETURN(const Layout layout, layout_of(named.manifest));
  std::vector<Hash> chunks;  // in the order of a file
  std::unordered_set<Hash> seen;
  for (const Placement& placement : layout.placements) {
    if (seen.insert(placement.chunk.hash).second) chunks.push_back(placement.chunk.hash);
  }
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  if (found->family) {
    return in_groups(chunks, [&](std::span<const Hash> group) -> Result<void> {
      TRY(store_.get_chunks(*found->family, group));
      return {};
    });
  }
  // Opened anew: where it is open, a removed file can still be read.
  ASSIGN_OR_RETURN(const ChunkReader reader,
                   ChunkReader::open(path_to_bytes(*found), layout, files_));
  TRY(reader.check_prefix(layout));
  std::mutex mutex;
  // freeing and allocating this memory costs as much as reading
  std::vector<std::vector<char>> idle;
  return in_groups(chunks, [&](std::span<const Hash> group) -> Result<void> {
    std::vector<char> scratch;
    if (const std::lock_guard lock(mutex); !idle.empty()) {
      scratch = std::move(idle.back());
      idle.pop_back();
    }
    TRY(reader.check_each(group, scratch));
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(scratch));
    return {};
  });
}

Result<bool> ObjectStore::verify(const Hash& object) {
  if (!has(object)) return fail(ErrorCode::kNotFound, text("no object ", object.short_hex()));
  if (check(object)) return true;
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  TRY(become_partial(*found));
  return false;
}

Result<void> ObjectStore::drop(const Hash& object) {
  ASSIGN_OR_RETURN(const ObjectPtr found, find(object));
  // The key first: after a crash in between, no key names the data and the next
  // start drops it.
  TRY(store_.write({{whole_key(object), std::nullopt}, {partial_key(object), std::nullopt}}));
  {
    const std::lock_guard lock(mutex_);
    objects_.erase(object);
    readers_.remove_if([&](const auto& reader) { return reader.first == object; });
  }
  if (found->family)
    return store_.has_family(*found->family) ? store_.drop_family(*found->family) : Result<void>();
  {
    const std::lock_guard lock(mutex_);
    found->writer.reset();
  }
  const std::string path = path_to(object);
  if (files_.exists(path)) TRY(noted(files_.remove(path)));
  return noted(ChunkWriter::discard(path, files_));
}

// A chunk's place is known before its name, so each is written as it is hashed.
Result<NamedManifest> ObjectStore::store_as_file(const Safetensors& tensors, Manifest facts) {
  TRY(store_.has_room(tensors.file().size(), false));
  ASSIGN_OR_RETURN(PartialFile file,
                   PartialFile::create(text(folder_, "/snapshot-", ++snapshots_), files_));
  const char* first = tensors.file().data();
  ASSIGN_OR_RETURN(
      NamedManifest named,
      build_checkpoint_manifest(
          tensors, std::move(facts), [&](const Hash&, std::string_view bytes) -> Result<void> {
            const auto offset = static_cast<std::uint64_t>(bytes.data() - first);
            TRY(file.file().write_at(offset, bytes));
            file.file().start_writing(offset, bytes.size());
            return {};
          }));
  ASSIGN_OR_RETURN(const Layout layout, layout_of(named.manifest));
  if (layout.total_bytes != tensors.file().size() || !tensors.file().starts_with(layout.prefix))
    return fail(ErrorCode::kInvalid, "a snapshot that another library wrote");
  TRY(file.file().write_at(0, layout.prefix));
  TRY(file.commit_as(path_to(named.name)));
  TRY(store_.write(
      {{whole_key(named.name), named.encoded}, {partial_key(named.name), std::nullopt}}));
  // of a copy that was being received
  TRY(ChunkWriter::discard(path_to(named.name), files_));
  const std::lock_guard lock(mutex_);
  objects_[named.name] = make_object(named, State::kWhole);
  // Of a file of this name that was damaged.
  readers_.remove_if([&](const auto& reader) { return reader.first == named.name; });
  return named;
}

Result<NamedManifest> ObjectStore::store_checkpoint(const Safetensors& tensors, Manifest facts) {
  if (checkpoints_ == Checkpoints::kAsFiles) return noted(store_as_file(tensors, std::move(facts)));
  ASSIGN_OR_RETURN(NamedManifest named, build_checkpoint_manifest(tensors, std::move(facts)));
  if (has(named.name)) TRY(verify(named.name));  // what is there may be damaged
  ASSIGN_OR_RETURN(const std::vector<Hash> present, begin(named));
  const std::unordered_set<Hash> have(present.begin(), present.end());
  TRY(for_each_chunk(named.manifest, tensors,
                     [&](const Hash& hash, std::string_view bytes) -> Result<void> {
                       if (have.contains(hash)) return {};
                       return put(named.name, hash, bytes);
                     }));
  TRY(seal(named.name));
  return named;
}

std::vector<Hash> beyond_last(const std::vector<ObjectInfo>& objects, std::size_t keep,
                              const std::unordered_set<Hash>& pinned) {
  std::map<ExpertId, std::vector<const ObjectInfo*>> by_expert;
  for (const ObjectInfo& info : objects) {
    if (info.kind == ManifestKind::kCheckpoint)
      by_expert[{info.facts.run, info.facts.expert}].push_back(&info);
  }
  std::vector<Hash> beyond;
  for (auto& [expert, checkpoints] : by_expert) {
    std::sort(checkpoints.begin(), checkpoints.end(), [](const ObjectInfo* a, const ObjectInfo* b) {
      return std::tie(a->facts.step, a->facts.epoch, a->name) >
             std::tie(b->facts.step, b->facts.epoch, b->name);
    });
    for (std::size_t i = keep; i < checkpoints.size(); ++i) {
      if (!pinned.contains(checkpoints[i]->name)) beyond.push_back(checkpoints[i]->name);
    }
  }
  return beyond;
}

}  // namespace skerry::storage
