// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/data_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "coordinator/host/authority.h"
#include "coordinator/host/host.h"
#include "protocol/secret_file.h"
#include "storage/files.h"
#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::coordinator {
namespace fs = std::filesystem;
namespace {

// Names a copy that is complete; a folder without it is none.
constexpr char kCopyMark[] = "backup-complete";
constexpr int kAttempts = 5;

Result<void> make_folder(const fs::path& path) {
  std::error_code error;
  if (!path.parent_path().empty()) fs::create_directories(path.parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("make the data folder", path.string(), errno);
  }
  return {};
}

Result<void> copy_secret(const fs::path& from, const fs::path& to) {
  ASSIGN_OR_RETURN(const std::string content, protocol::read_secret_file(from));
  return protocol::write_secret_file(to, content);
}

// As RocksDB locks its folder.
bool is_locked(const fs::path& file) {
  const UniqueFd lock(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!lock) return false;
  struct flock asked {};
  asked.l_type = F_WRLCK;
  asked.l_whence = SEEK_SET;
  return ::fcntl(lock.get(), F_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
}

// At once, where the file system can. `mine` may be missing: then `other` takes
// its place.
Result<void> change_places(const fs::path& mine, const fs::path& other) {
  if (::renameat2(AT_FDCWD, mine.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return {};
  std::error_code error;
  if (errno == ENOENT) {
    fs::rename(other, mine, error);
  } else {
    const fs::path between = other.string() + "-fresh";
    fs::rename(other, between, error);
    if (!error) fs::rename(mine, other, error);
    if (!error) fs::rename(between, mine, error);
  }
  if (error)
    return fail(ErrorCode::kIo, text("cannot move ", mine.string(), ": ", error.message()));
  return {};
}

bool is_inside(const fs::path& inner, const fs::path& outer) {
  std::error_code error;
  const fs::path there = fs::weakly_canonical(inner, error);
  const fs::path from_outer = there.lexically_relative(fs::weakly_canonical(outer, error));
  return !from_outer.empty() && *from_outer.begin() != "..";
}

struct View {
  std::unique_ptr<storage::Store> store;
  std::unique_ptr<const storage::ObjectStore> objects;
  std::vector<KeyValue> state;
  std::vector<NamedObject> named;  // by the state
};

// A folder as it is now, also one in use. An object that it names may have been
// stored a moment after the look at the store began: then it is not whole.
Result<View> view_folder(const fs::path& folder, const protocol::Identity& identity,
                         const fs::path& scratch) {
  View view;
  ASSIGN_OR_RETURN(view.store,
                   storage::view_rocksdb_store((folder / "store").string(), scratch.string()));
  ASSIGN_OR_RETURN(view.objects,
                   storage::ObjectStore::view(*view.store, (folder / "objects").string(),
                                              storage::Checkpoints::kInStore));
  ASSIGN_OR_RETURN(view.state, read_state(*view.store));
  if (view.state.empty())
    return fail(ErrorCode::kInvalid, text(folder.string(), " holds no coordinator's state"));
  const Config config;
  SystemRng rng;
  const IdentityAuthority authority(identity);
  ASSIGN_OR_RETURN(const auto core,
                   Core::load(config, rng, authority, view.state, SystemClock().now()));
  TRY(check_objects(*core, *view.objects));
  view.named = core->objects();
  return view;
}

// Copies the chunks that can be read. RETURNS: whether these are all.
Result<bool> copy_chunks(const storage::ObjectStore& from, storage::ObjectStore& to,
                         const storage::NamedManifest& object, bool is_last_attempt) {
  const bool should_be_whole = from.has(object.name);
  ASSIGN_OR_RETURN(const std::vector<Hash> there, to.begin(object));
  const std::set<Hash> present(there.begin(), there.end());
  bool is_whole = true;
  for (const storage::Chunk& chunk : storage::distinct_chunks(object.manifest)) {
    if (present.contains(chunk.hash)) continue;
    const Result<std::string> bytes = from.salvage(object.name, chunk.hash);
    if (bytes) {
      TRY(to.put(object.name, chunk.hash, *bytes));
      continue;
    }
    const ErrorCode why = bytes.error().code;
    // A running coordinator may have dropped or moved the object: the next
    // attempt sees what became of it. It never writes other bytes in the place
    // of the object's.
    const bool is_gone = why == ErrorCode::kNotFound || why == ErrorCode::kIo;
    const bool may_be_a_race = is_gone && should_be_whole && !is_last_attempt;
    if (may_be_a_race || (why != ErrorCode::kCorrupt && !is_gone)) return bytes.error();
    is_whole = false;
  }
  return is_whole;
}

// Copies what the state names, and what else is whole. RETURNS: the objects
// that the state names and `to` has in part only.
Result<std::set<Hash>> copy_objects(const View& source, storage::ObjectStore& to,
                                    bool is_last_attempt) {
  const storage::ObjectStore& from = *source.objects;
  std::set<Hash> named;
  std::set<Hash> wanted;
  for (const NamedObject& object : source.named) {
    named.insert(object.manifest);
    // A complete object that is not whole is damaged; one that is not complete
    // is still being uploaded.
    if (object.complete) wanted.insert(object.manifest);
  }
  for (const storage::ObjectInfo& info : from.list()) wanted.insert(info.name);
  std::set<Hash> lacking;
  for (const Hash& name : wanted) {
    ASSIGN_OR_RETURN(const storage::NamedManifest object, from.known_manifest(name));
    ASSIGN_OR_RETURN(const bool is_whole, copy_chunks(from, to, object, is_last_attempt));
    if (is_whole) {
      TRY(to.seal(name));
    } else if (named.contains(name)) {
      TRY(to.flush(name));
      lacking.insert(name);
    } else {
      TRY(to.drop(name));
    }
  }
  return lacking;
}

std::vector<std::string> lines_on(const std::set<Hash>& lacking,
                                  const std::vector<NamedObject>& named) {
  std::vector<std::string> lines;
  for (const NamedObject& object : named) {
    if (lacking.contains(object.manifest))
      lines.push_back(text(object.needed_by, " (object ", object.manifest.short_hex(), ")"));
  }
  return lines;
}

Result<std::vector<std::string>> copy_into(const fs::path& from, const fs::path& to,
                                           std::optional<Restore> restore, bool is_last_attempt) {
  const fs::path scratch = to / "reading";
  std::set<Hash> lacking;
  std::vector<NamedObject> named;
  ASSIGN_OR_RETURN(const protocol::Identity identity,
                   protocol::Identity::load(DataFolder{from}.identity_file()));
  ASSIGN_OR_RETURN(const DataFolder target, open_data_folder(to));
  TRY(copy_secret(DataFolder{from}.identity_file(), target.identity_file()));
  std::error_code ignored;
  if (fs::exists(DataFolder{from}.admin_file(), ignored))
    TRY(copy_secret(DataFolder{from}.admin_file(), target.admin_file()));
  {
    ASSIGN_OR_RETURN(View source, view_folder(from, identity, scratch));
    ASSIGN_OR_RETURN(lacking, copy_objects(source, *target.objects, is_last_attempt));
    named = std::move(source.named);
    if (restore) {
      ASSIGN_OR_RETURN(source.state,
                       Core::restored(source.state, restore->unix_ms, restore->tokens));
    }
    std::vector<storage::Write> batch;
    for (KeyValue& entry : source.state)
      batch.push_back({kStatePrefix + entry.key, std::move(entry.value)});
    TRY(target.store->write(batch));  // last: without it the copy holds no state
  }
  fs::remove_all(scratch, ignored);
  return lines_on(lacking, named);
}

}  // namespace

Result<DataFolder> open_data_folder(const fs::path& path) {
  TRY(make_folder(path));
  DataFolder folder;
  folder.path = path;
  ASSIGN_OR_RETURN(folder.store, storage::open_rocksdb_store((path / "store").string()));
  ASSIGN_OR_RETURN(folder.objects,
                   storage::ObjectStore::open(*folder.store, (path / "objects").string(),
                                              storage::Checkpoints::kInStore));
  return folder;
}

Result<void> write_admin_context(const DataFolder& folder, const protocol::Identity& coordinator,
                                 const protocol::Identity& admin,
                                 const protocol::Endpoints& endpoints,
                                 const pb::Certificate& certificate) {
  protocol::Context context;
  context.name = "admin";
  context.role = pb::ROLE_ADMIN;
  context.endpoints = endpoints;
  context.coordinator_key = coordinator.ed25519_key();
  context.seed = admin.seed();
  context.certificate = certificate;
  return protocol::write_context(folder.admin_file(), context);
}

Result<void> refresh_admin_context(const DataFolder& folder, const protocol::Endpoints& endpoints) {
  Result<protocol::Context> context = protocol::read_context(folder.admin_file());
  if (!context) {
    if (context.error().code == ErrorCode::kNotFound) return {};
    return context.error();
  }
  if (context->endpoints == endpoints) return {};
  context->endpoints = endpoints;
  return protocol::write_context(folder.admin_file(), *context);
}

Result<std::vector<std::string>> copy_data_folder(const fs::path& from, const fs::path& to,
                                                  std::optional<Restore> restore) {
  std::error_code error;
  if (!fs::exists(from / "store", error)) {
    return fail(ErrorCode::kNotFound, text(from.string(), " is no data folder of a coordinator"));
  }
  if (restore && !fs::exists(from / kCopyMark, error)) {
    return fail(ErrorCode::kInvalid,
                text(from.string(), " is no complete backup: it lacks the file ", kCopyMark,
                     ", which `skerry-coordinator backup` writes last; restore another one, or, if "
                     "this is the coordinator's own folder, start on it without restore"));
  }
  if (is_inside(to, from)) {
    return fail(ErrorCode::kInvalid, text(to.string(), " lies in ", from.string(),
                                          ", which is copied: name a folder outside of it"));
  }
  if (fs::exists(to, error) && !fs::is_empty(to, error)) {
    return fail(ErrorCode::kConflict,
                text(to.string(), " exists and is not empty; name a folder that does not exist"));
  }
  // A coordinator that runs may drop or store something at the moment of the
  // look. Nothing changes a backup.
  const int attempts = restore ? 1 : kAttempts;
  for (int attempt = 1;; ++attempt) {
    Result<std::vector<std::string>> copied = copy_into(from, to, restore, attempt == attempts);
    if (copied && !restore) {
      const Result<void> marked =
          protocol::write_secret_file(to / kCopyMark, "a backup of a Skerry coordinator\n");
      if (!marked) copied = marked.error();
    }
    if (copied) return copied;
    fs::remove_all(to, error);
    if (attempt == attempts || copied.error().code == ErrorCode::kExhausted) return copied;
  }
}

Result<fs::path> begin_fresh_store(const fs::path& path, std::int64_t unix_ms) {
  const DataFolder folder{path, nullptr, nullptr};
  std::error_code error;
  if (!fs::exists(folder.identity_file(), error)) {
    return fail(ErrorCode::kNotFound, text("there is no identity in ", path.string(),
                                           ": name the folder of the coordinator that is to go "
                                           "on, or start one anew without restore"));
  }
  if (is_locked(path / "store" / "db" / "LOCK"))
    return fail(ErrorCode::kConflict,
                text("a coordinator runs on ", path.string(), ": stop it first"));
  fs::path kept;
  for (int number = 1; kept.empty() || fs::exists(kept, error); ++number)
    kept = path / text("damaged-", number);
  {
    ASSIGN_OR_RETURN(const DataFolder fresh, open_data_folder(kept));
    std::vector<storage::Write> batch;
    for (KeyValue& entry : Core::fresh(unix_ms))
      batch.push_back({kStatePrefix + entry.key, std::move(entry.value)});
    TRY(fresh.store->write(batch));
  }
  // The store last: until then a start finds the damaged one, never an empty
  // one, which would be a first start.
  TRY(change_places(path / "objects", kept / "objects"));
  TRY(change_places(path / "store", kept / "store"));
  if (fs::exists(path / "admin.toml", error))
    fs::rename(path / "admin.toml", kept / "admin.toml", error);
  if (error) return fail(ErrorCode::kIo, text("cannot move admin.toml: ", error.message()));
  return kept;
}

}  // namespace skerry::coordinator
