// SPDX-License-Identifier: Apache-2.0
// Runs jobs that wait for the disk, so that an event loop, and with it the
// heartbeat, never blocks. A worker runs its jobs in order and passes the
// result of each back to the loop.
//
// ThreadWorker has its own thread; its loop polls Completions::descriptor() and
// runs the completions. ManualWorker runs its jobs on request, for tests and
// simulations.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace skerry {

using Done = std::function<void()>;  // runs on the loop's thread

class Completions {
 public:
  static Result<Completions> make();
  Completions(Completions&& other) noexcept : descriptor_(std::move(other.descriptor_)) {}
  Completions& operator=(Completions&&) = delete;

  int descriptor() const { return descriptor_.get(); }
  void post(Done done);  // any thread
  void run();            // the loop's thread: runs what was posted so far

 private:
  explicit Completions(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {}
  UniqueFd descriptor_;
  std::mutex mutex_;
  std::vector<Done> done_;
};

class Worker {
 public:
  using Job = std::function<Done()>;
  Worker() = default;
  virtual ~Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Queues a job. The function that it returns, if any, runs on the loop's
  // thread.
  // THREADS: the loop's.
  virtual void run(Job job) = 0;
  // Runs the queued jobs. Afterwards the objects that jobs refer to may be
  // destroyed. This call does not run the functions that jobs returned.
  virtual void finish() = 0;
};

class ThreadWorker final : public Worker {
 public:
  // LIFETIME: `completions` outlives this.
  explicit ThreadWorker(Completions& completions);
  ~ThreadWorker() override { finish(); }
  void run(Job job) override;
  // REQUIRES: no job is queued afterwards.
  void finish() override;

 private:
  void loop();
  Completions& completions_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

class ManualWorker final : public Worker {
 public:
  void run(Job job) override { jobs_.push_back(std::move(job)); }
  // Runs all of them at once, as ThreadWorker does at its end.
  void finish() override;
  std::size_t waiting() const { return jobs_.size(); }
  // Runs the next job.
  // REQUIRES: waiting() > 0.
  // RETURNS: the function to run on the loop, or nothing.
  Done next();
  // Drops the queued jobs, as a killed process does.
  void drop() { jobs_.clear(); }

 private:
  std::deque<Job> jobs_;
};

}  // namespace skerry
