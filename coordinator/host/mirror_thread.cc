// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/mirror_thread.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "coordinator/host/authority.h"
#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::coordinator {
namespace fs = std::filesystem;
namespace {

constexpr int kAttempts = 20;      // to read a state whose objects are all still there
constexpr int kLongestPause = 16;  // times the pause, after failures

// `is_read`: the store could be read. A coordinator that runs may change it
// while it is opened.
Result<Mirrored> mirror_once(Mirror& mirror, const fs::path& data, const fs::path& scratch,
                             const Authority& authority, bool is_last_attempt,
                             const MirrorProgress& progress, bool& is_read) {
  ASSIGN_OR_RETURN(const auto store,
                   storage::view_rocksdb_store((data / "store").string(), scratch.string()));
  ASSIGN_OR_RETURN(const auto objects,
                   storage::ObjectStore::view(*store, (data / "objects").string(),
                                              storage::Checkpoints::kInStore));
  is_read = true;
  return mirror.update({*store, *objects}, authority, SystemClock().now(), is_last_attempt,
                       progress);
}

}  // namespace

Result<Mirrored> mirror_folder(Mirror& mirror, const fs::path& data, const fs::path& scratch,
                               const protocol::Identity& identity, const std::atomic<bool>* stop,
                               const MirrorProgress& progress) {
  const IdentityAuthority authority(identity);
  Result<Mirrored> mirrored = fail(ErrorCode::kInvalid, "no attempt");
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    std::error_code ignored;
    fs::remove_all(scratch, ignored);
    bool is_read = false;
    mirrored =
        mirror_once(mirror, data, scratch, authority, attempt == kAttempts, progress, is_read);
    if (mirrored || (stop != nullptr && *stop)) break;
    // Of a coordinator that runs: the next look sees what became of an object.
    const ErrorCode why = mirrored.error().code;
    const bool may_be_a_race = !is_read || why == ErrorCode::kNotFound || why == ErrorCode::kIo ||
                               why == ErrorCode::kCorrupt;
    if (!may_be_a_race) break;
  }
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  return mirrored;
}

Result<std::unique_ptr<MirrorThread>> MirrorThread::start(const fs::path& data,
                                                          const protocol::Identity& identity,
                                                          storage::S3Place place, Duration pause) {
  std::unique_ptr<MirrorThread> made(new MirrorThread(data, identity, pause));
  place.stop = &made->stop_;
  ASSIGN_OR_RETURN(made->bucket_, storage::open_s3_bucket(std::move(place)));
  made->thread_ = std::thread([it = made.get()] { it->run(); });
  return made;
}

MirrorThread::~MirrorThread() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MirrorThread::run() {
  Mirror mirror(*bucket_, identity_.ed25519_key());
  bool fails = false;
  ErrorCode told{};  // the last failure, where it fails
  bool is_first = true;
  int pauses = 1;
  while (!stop_) {
    const Result<Mirrored> mirrored =
        mirror_folder(mirror, data_, data_ / "mirroring", identity_, &stop_);
    if (stop_) return;
    if (mirrored) {
      for (const Hash& lacking : mirrored->copied.lacking) {
        if (is_first) log_warning("the mirror lacks a damaged object", {{"object", lacking.hex()}});
      }
      if (is_first || fails) {
        log_info("the bucket holds everything",
                 {{"bucket", bucket_->shown()}, {"sent_bytes", mirrored->sent_bytes}});
      }
      is_first = false;
      fails = false;
      pauses = 1;
    } else {
      if (!std::exchange(fails, true) || told != mirrored.error().code) {
        log_warning("the bucket lags behind; the coordinator goes on and tries again",
                    {{"why", mirrored.error().message}});
      }
      told = mirrored.error().code;
      pauses = std::min(2 * pauses, kLongestPause);
    }
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, pauses * pause_, [this] { return stop_.load(); });
  }
}

}  // namespace skerry::coordinator
