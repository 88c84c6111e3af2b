// SPDX-License-Identifier: Apache-2.0
// Keeps the mirror of a running coordinator up to date, on a thread of its own.
// It reads the data folder as a backup does, so no commit waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "coordinator/host/mirror.h"
#include "protocol/identity.h"
#include "storage/bucket/s3_bucket.h"

namespace skerry::coordinator {

// Brings the bucket up to the state of a data folder, on which a coordinator
// may run. `scratch`: a folder that nobody else uses, removed in the end.
// ON FAILURE: as Mirror::update().
Result<Mirrored> mirror_folder(Mirror& mirror, const std::filesystem::path& data,
                               const std::filesystem::path& scratch,
                               const protocol::Identity& identity,
                               const std::atomic<bool>* stop = nullptr,
                               const MirrorProgress& progress = {});

class MirrorThread {
 public:
  // `pause`: between two looks at the state. A failure is logged once, and
  // tried again after a longer pause, until it has passed.
  // LIFETIME: `identity` outlives this.
  // ON FAILURE: as open_s3_bucket().
  static Result<std::unique_ptr<MirrorThread>> start(const std::filesystem::path& data,
                                                     const protocol::Identity& identity,
                                                     storage::S3Place place, Duration pause);
  ~MirrorThread();  // within a second; what is not in the bucket yet comes at the next start

 private:
  MirrorThread(std::filesystem::path data, const protocol::Identity& identity, Duration pause)
      : data_(std::move(data)), identity_(identity), pause_(pause) {}
  void run();

  std::filesystem::path data_;
  const protocol::Identity& identity_;
  Duration pause_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable stopped_;
  std::unique_ptr<storage::Bucket> bucket_;
  std::thread thread_;
};

}  // namespace skerry::coordinator
