// A thread for everything that waits for the disk, so that an event loop, and with it the heartbeat, never does. It does
// its work in order and hands what follows back to the loop, which polls Completions::descriptor() and runs what has come.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
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
  // `completions` must outlive this.
  explicit Worker(Completions& completions);
  ~Worker();  // does what is queued, then ends
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void run(Job job);

 private:
  void loop();
  Completions& completions_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skerry
