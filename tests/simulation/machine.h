// SPDX-License-Identifier: Apache-2.0
// What a host runs on in a simulation. The clock drifts. The disk fails as
// disks do, and outlives processes. The timeline drives the worker.
//
// THREADS: one.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/worker.h"
#include "storage/testing/faulty_files.h"
#include "storage/testing/faulty_store.h"
#include "storage/testing/memory_files.h"
#include "storage/testing/memory_store.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

inline constexpr char kObjectsFolder[] = "/objects";

class MachineClock final : public Clock {
 public:
  // `booted`: before the simulation began.
  MachineClock(const Timeline& timeline, Duration booted, double drift)
      : timeline_(timeline), booted_(booted), drift_(drift) {}

  Now now() const override;
  // RETURNS: how long on the timeline it is until this boot time. A little
  // more, so that rounding wakes nobody too early again and again.
  Duration until(Duration boot) const;
  void set_drift(double drift) { drift_ = drift; }
  void set_wall_offset(std::int64_t ms) { wall_offset_ms_ = ms; }

 private:
  const Timeline& timeline_;
  Duration booted_;
  double drift_;
  std::int64_t wall_offset_ms_ = 0;
};

// How long a disk takes.
struct DiskPace {
  Duration state_min = milliseconds(1);  // a job of the core's state; on a node: any job
  Duration state_max = milliseconds(5);
  Duration object_min = milliseconds(4);  // a job of an object on the coordinator
  Duration object_max = milliseconds(20);
};

class Disk {
 public:
  class Store final : public storage::MemoryStore {
   public:
    bool is_full = false;           // of chunks and files
    bool is_full_of_state = false;  // not even metadata fits
    std::string mirrored;           // keys that begin with this stand in `mirror` as well
    Durable mirror;                 // without that prefix
    std::function<void(const std::string& key)> written;  // none: nobody looks
    Result<void> has_room(std::size_t bytes, bool metadata) const override;

   private:
    Result<void> do_write(std::span<const storage::Write> batch) override;
  };

  // REQUIRES: no process is on it; so for the next.
  void copy_from(const Disk& other);
  void wipe() { copy_from(Disk()); }
  // RETURNS: whether the disk, as a crash would leave it, holds these bytes
  // under the name of a whole object.
  bool holds(const Object& object) const;
  bool is_there(const Object& object) const;  // by its name only
  // A whole checkpoint that is a file here, with the facts of its manifest.
  // ON FAILURE: kNotFound, kCorrupt.
  Result<Object> checkpoint(const Hash& name) const;
  // Loses a byte of an object. False: it is not here.
  bool damage(const Hash& object);
  // Puts the right bytes of an object back, whole, if anything of it is here.
  void repair(const Object& object);

  void make_room() { kept.is_full = kept.is_full_of_state = false; }
  // As its file system says, and as far as files may grow.
  void set_free_bytes(std::uint64_t bytes);
  void flip_reads(double share, std::uint64_t seed);
  bool flips() const { return flips_; }
  // Ends every fault, also those to come.
  void heal();
  // Whether the store has failed for longer than a process may go on for.
  // REQUIRES: asked each time that a host which has not ended has run.
  bool is_outlived(Duration now);
  // The process has ended. REQUIRES: nothing of it is left. `machine`: it ended
  // with its machine, and what was not synced may be lost.
  void process_ended(std::uint64_t seed, bool machine);

  DiskPace pace;
  Store kept;
  storage::FaultyStore store{kept};
  storage::MemoryFiles kept_files;
  storage::FaultyFiles files{kept_files};

 private:
  bool flips_ = false;
  std::uint64_t free_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::optional<Duration> failed_at_;
};

// Does its jobs one after the other, each after a while.
class TimedWorker final : public Worker {
 public:
  // `takes` draws how long the next job takes; `finished` gets what follows on
  // the loop, which may be nothing.
  TimedWorker(Timeline& timeline, std::function<Duration()> takes,
              std::function<void(const Done&)> finished)
      : timeline_(timeline), takes_(std::move(takes)), finished_(std::move(finished)) {}
  ~TimedWorker() override { *alive_ = false; }

  void run(Job job) override;
  void finish() override;
  // The job that is given next takes so much longer.
  void next_takes_longer(Duration time) { longer_ = time; }
  std::size_t waiting() const { return jobs_.size(); }
  // SIGKILL: this many jobs were done, nobody hears of it, the rest never is.
  void kill(std::size_t were_done);
  // SIGSTOP and SIGCONT.
  void stop() { is_stopped_ = true; }
  void go_on();

 private:
  void plan();
  void due();

  Timeline& timeline_;
  std::function<Duration()> takes_;
  std::function<void(const Done&)> finished_;
  struct Waiting {
    Job job;
    Duration longer{};
  };
  std::deque<Waiting> jobs_;
  Duration longer_{};
  bool is_planned_ = false;
  bool is_stopped_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The next moment at which a host is due; the earliest of those that were set.
class Alarm {
 public:
  Alarm(Timeline& timeline, std::function<void()> ring)
      : timeline_(timeline), ring_(std::move(ring)) {}
  ~Alarm() { *alive_ = false; }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  // Rings then, instead of when it was set to before.
  void set(Duration at);
  Duration at() const { return at_; }  // Duration::max(): it does not ring

 private:
  void plan();

  Timeline& timeline_;
  std::function<void()> ring_;
  Duration at_ = Duration::max();
  Duration planned_ = Duration::max();  // when it looks next
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace skerry::simulation
