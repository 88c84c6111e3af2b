// SPDX-License-Identifier: Apache-2.0
// Does everything that waits for the disk, so that an event loop, and with it
// the heartbeat, never does. A worker does its jobs in order and hands what
// follows from each back to the loop.
//
// ThreadWorker has a thread of its own; its loop polls
// Completions::descriptor() and runs what has come. ManualWorker does its jobs
// when it is told to, for tests and simulations.
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

using Done = std::function<void()>;  // run on the loop's thread

class Completions {
 public:
  static Result<Completions> make();
  Completions(Completions&& other) noexcept : descriptor_(std::move(other.descriptor_)) {}
  Completions& operator=(Completions&&) = delete;

  int descriptor() const { return descriptor_.get(); }
  void post(Done done);  // any thread
  void run();            // the loop's: what was posted so far

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

  // Queues a job; what it returns, if anything, runs on the loop's thread.
  // THREADS: the loop's.
  virtual void run(Job job) = 0;
  // Does what is queued. What jobs refer to may go afterwards, and what they
  // returned is not run by this call.
  virtual void finish() = 0;
};

class ThreadWorker final : public Worker {
 public:
  // LIFETIME: `completions` outlives this.
  explicit ThreadWorker(Completions& completions);
  ~ThreadWorker() override { finish(); }
  void run(Job job) override;
  // REQUIRES: nothing is run afterwards.
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
  // All of it at once, as ThreadWorker does at its end.
  void finish() override;
  std::size_t waiting() const { return jobs_.size(); }
  // REQUIRES: waiting() > 0. Does the next job; RETURNS: what follows from it
  // on the loop, or nothing.
  Done next();
  // Forgets what is queued, as a process that is killed does.
  void drop() { jobs_.clear(); }

 private:
  std::deque<Job> jobs_;
};

}  // namespace skerry
