// SPDX-License-Identifier: Apache-2.0
#include "base/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry {

Result<Completions> Completions::make() {
  UniqueFd descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (descriptor.get() < 0)
    return fail(ErrorCode::kIo, text("cannot make an eventfd: ", std::strerror(errno)));
  return Completions(std::move(descriptor));
}

void Completions::post(Done done) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(done));
  }
  const std::uint64_t one = 1;
  // Full only after 2^64 - 1 unread posts, and then it is readable all the
  // same.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_.get(), &one, sizeof(one));
}

void Completions::run() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes = ::read(descriptor_.get(), &count, sizeof(count));
  std::vector<Done> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(done_);
  }
  for (const Done& done : posted) done();
}

ThreadWorker::ThreadWorker(Completions& completions)
    : completions_(completions), thread_([this] { loop(); }) {}

void ThreadWorker::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ThreadWorker::run(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ThreadWorker::loop() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Done done = job();
    job = nullptr;  // what it held goes before its outcome is known
    if (done) completions_.post(std::move(done));
  }
}

void ManualWorker::finish() {
  while (waiting() > 0) [[maybe_unused]] const Done done = next();
}

Done ManualWorker::next() {
  SKERRY_CHECK(!jobs_.empty(), "no job waits");
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job();
}

}  // namespace skerry
