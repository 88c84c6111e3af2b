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
#include "coordinator/host/backup.h"
#include "coordinator/host/host.h"
#include "protocol/secret_file.h"
#include "storage/files.h"
#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::coordinator {
namespace fs = std::filesystem;
namespace {

// Names a copy that is complete; a folder without it is none.
constexpr char kCopyMark[] = "backup-complete";
constexpr int kAttempts = 20;

Result<void> make_folder(const fs::path& path) {
  std::error_code error;
  if (!path.parent_path().empty()) fs::create_directories(path.parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return data_folder_error("make the data folder", path.string(), errno);
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

Result<CopiedData> attempt_copy(const fs::path& from, const DataFolder& target,
                                const Authority& authority, const std::optional<Restore>& restore,
                                bool is_last_attempt) {
  // As it is now, also in use: an object that it names may have been stored a
  // moment after the look at the store began. Then it is not whole.
  const fs::path scratch = target.path / "reading";
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  ASSIGN_OR_RETURN(const auto store,
                   storage::view_rocksdb_store((from / "store").string(), scratch.string()));
  ASSIGN_OR_RETURN(const auto objects,
                   storage::ObjectStore::view(*store, (from / "objects").string(),
                                              storage::Checkpoints::kInStore));
  return copy_data({*store, *objects}, {*target.store, *target.objects}, authority,
                   SystemClock().now(), restore, is_last_attempt);
}

Result<std::vector<std::string>> copy_into(const fs::path& from, const fs::path& to,
                                           const std::optional<Restore>& restore) {
  ASSIGN_OR_RETURN(const protocol::Identity identity,
                   protocol::Identity::load(DataFolder{from}.identity_file()));
  ASSIGN_OR_RETURN(const DataFolder target, open_data_folder(to));
  TRY(copy_secret(DataFolder{from}.identity_file(), target.identity_file()));
  std::error_code ignored;
  if (fs::exists(DataFolder{from}.admin_file(), ignored))
    TRY(copy_secret(DataFolder{from}.admin_file(), target.admin_file()));
  // A coordinator that runs may drop or store something at the moment of the
  // look. Nothing changes a backup.
  const int attempts = restore ? 1 : kAttempts;
  const IdentityAuthority authority(identity);
  Result<CopiedData> copied = fail(ErrorCode::kInvalid, "no attempt");
  for (int attempt = 1; attempt <= attempts; ++attempt) {
    copied = attempt_copy(from, target, authority, restore, attempt == attempts);
    if (copied || copied.error().code == ErrorCode::kExhausted) break;
  }
  if (!copied) return copied.error();
  fs::remove_all(to / "reading", ignored);
  return lines_on(*copied);
}

// For who has nothing left but the coordinator's identity. The state does not
// know that admin: the coordinator lets it in by its certificate. The addresses
// come at its start.
Result<void> write_new_admin(const DataFolder& folder, const protocol::Identity& coordinator) {
  const protocol::Identity admin = protocol::Identity::generate();
  const std::int64_t now = SystemClock().now().unix_ms;
  pb::CertificateBody body;
  body.set_version(1);
  body.set_node_id(admin.node_id().str());
  body.set_ed25519_key(admin.ed25519_key());
  body.set_x25519_key(admin.x25519_key());
  body.set_role(pb::ROLE_ADMIN);
  body.set_name("admin");
  body.set_issued_unix_ms(now);
  body.set_expires_unix_ms(now + Config().certificate_ms);
  const IdentityAuthority authority(coordinator);
  return write_admin_context(
      folder, coordinator, admin,
      {"tcp://127.0.0.1:7600", "tcp://127.0.0.1:7601", "tcp://127.0.0.1:7602"},
      authority.certify(std::move(body)));
}

}  // namespace

std::vector<std::string> lines_on(const CopiedData& copied) {
  std::vector<std::string> lines;
  for (const NamedObject& object : copied.named) {
    if (copied.lacking.contains(object.manifest))
      lines.push_back(text(object.needed_by, " (object ", object.manifest.short_hex(), ")"));
  }
  return lines;
}

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
  Result<std::vector<std::string>> copied = copy_into(from, to, restore);
  if (copied && !restore) {
    const Result<void> marked =
        protocol::write_secret_file(to / kCopyMark, "a backup of a Skerry coordinator\n");
    if (!marked) copied = marked.error();
  }
  if (!copied) fs::remove_all(to, error);
  return copied;
}

Result<std::vector<std::string>> restore_from_bucket(const storage::Bucket& bucket,
                                                     const fs::path& identity, const fs::path& to,
                                                     const Restore& restore,
                                                     const MirrorProgress& progress) {
  ASSIGN_OR_RETURN(const protocol::Identity its, protocol::Identity::load(identity));
  ASSIGN_OR_RETURN(const DataFolder target, open_data_folder(to));
  ASSIGN_OR_RETURN(const std::vector<KeyValue> there, read_state(*target.store));
  if (!there.empty()) {
    return fail(ErrorCode::kConflict,
                text(to.string(),
                     " holds a coordinator's state; name a folder that does not "
                     "exist"));
  }
  // The identity first, the state last: no folder with a state lacks either.
  std::error_code error;
  if (fs::exists(target.identity_file(), error)) {
    ASSIGN_OR_RETURN(const protocol::Identity found,
                     protocol::Identity::load(target.identity_file()));
    if (found.ed25519_key() != its.ed25519_key()) {
      return fail(ErrorCode::kConflict,
                  text(to.string(),
                       " holds another coordinator's identity; name a folder that "
                       "does not exist"));
    }
  } else {
    TRY(copy_secret(identity, target.identity_file()));
  }
  TRY(write_new_admin(target, its));
  const IdentityAuthority authority(its);
  ASSIGN_OR_RETURN(const CopiedData copied,
                   restore_from(bucket, its.ed25519_key(), {*target.store, *target.objects},
                                authority, SystemClock().now(), restore, progress));
  return lines_on(copied);
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
    TRY(write_state(*fresh.store, Core::fresh(unix_ms)));
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
