// SPDX-License-Identifier: Apache-2.0
// LD_PRELOAD for one program: fails one write or sync of a file below a folder,
// as disks do.
//
//   - SKERRY_FAIL_FOLDER: the folder.
//   - SKERRY_FAIL_WHAT: write, nothing is written, EIO; torn, half is written,
//     then EIO; space, ENOSPC; sync, EIO and unsynced data is lost.
//   - SKERRY_FAIL_AT: which one of its kind fails, from 1.
//
// A failed sync loses data as a kernel that drops dirty pages does. Where the
// file has its size already, the former bytes return.
//
// Everything after it succeeds again: a program that retries would believe
// itself safe.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

struct Plan {
  std::string folder;
  std::string what;
  long at = 0;
};

const Plan& plan() {
  static const Plan made = [] {
    const auto text = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    return Plan{text("SKERRY_FAIL_FOLDER") + "/", text("SKERRY_FAIL_WHAT"),
                std::atol(text("SKERRY_FAIL_AT").c_str())};
  }();
  return made;
}

std::atomic<long> writes = 0;
std::atomic<long> syncs = 0;
std::atomic<bool> torn = false;  // the next write fails

using Inode = std::pair<dev_t, ino_t>;
std::mutex mutex;
// What a failed sync leaves of a file.
struct Durable {
  off_t size = 0;
  std::vector<std::pair<off_t, std::string>>
      before;  // what stood where later writes went, in their order
};
std::map<Inode, Durable>& durable() {
  static auto* const files = new std::map<Inode, Durable>;  // outlives every thread that writes
  return *files;
}

// REQUIRES: the mutex is held.
void remember(int fd, const struct stat& status, off_t at, size_t count) {
  Durable& file = durable()
                      .try_emplace({status.st_dev, status.st_ino}, Durable{status.st_size, {}})
                      .first->second;
  if (plan().what != "sync" || at >= file.size) return;
  std::string bytes(std::min(count, static_cast<size_t>(file.size - at)), '\0');
  const int reader = ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
  if (reader < 0) return;
  const ssize_t read = ::pread(reader, bytes.data(), bytes.size(), at);
  ::close(reader);
  if (read <= 0) return;
  bytes.resize(static_cast<size_t>(read));
  file.before.emplace_back(at, std::move(bytes));
}

// REQUIRES: the mutex is held.
void lose_unsynced(int fd, const struct stat& status) {
  const auto kept = durable().find({status.st_dev, status.st_ino});
  if (kept == durable().end()) return;
  Durable& file = kept->second;
  if (file.size < status.st_size) {
    [[maybe_unused]] const int cut = ::ftruncate(fd, file.size);
  }
  static const auto write_back = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  for (; !file.before.empty(); file.before.pop_back()) {
    const auto& [at, bytes] = file.before.back();
    [[maybe_unused]] const ssize_t restored = write_back(fd, bytes.data(), bytes.size(), at);
  }
}

bool is_ours(int fd, struct stat& status) {
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 &&
         std::string_view(path, static_cast<std::size_t>(length)).starts_with(plan().folder);
}

void say(const char* what) {
  const std::string line = std::string("fail_disk: ") + what + " fails\n";
  const auto write = real<ssize_t (*)(int, const void*, size_t)>("write");
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, line.data(), line.size());
}

// `proceed(count)` writes that many bytes at `at`.
template <class Proceed>
ssize_t write_some(int fd, size_t count, off_t at, const Proceed& proceed) {
  struct stat status {};
  if (!is_ours(fd, status)) return proceed(count);
  {
    const std::lock_guard lock(mutex);
    remember(fd, status, at, count);
  }
  const Plan& planned = plan();
  if (torn.exchange(false)) {
    errno = EIO;
    return -1;
  }
  const bool writes_fail =
      planned.what == "write" || planned.what == "torn" || planned.what == "space";
  if (!writes_fail || ++writes != planned.at) return proceed(count);
  say(planned.what.c_str());
  if (planned.what == "torn" && count > 1) {
    torn = true;
    return proceed(count / 2);
  }
  errno = planned.what == "space" ? ENOSPC : EIO;
  return -1;
}

template <class Proceed>
int sync_some(int fd, const Proceed& proceed) {
  struct stat status {};
  if (!is_ours(fd, status)) return proceed();
  if (plan().what == "sync" && ++syncs == plan().at) {
    say("sync");
    const std::lock_guard lock(mutex);
    lose_unsynced(fd, status);
    errno = EIO;
    return -1;
  }
  const int synced = proceed();
  if (synced == 0) {
    const std::lock_guard lock(mutex);
    durable()[{status.st_dev, status.st_ino}] = {status.st_size, {}};
  }
  return synced;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  return write_some(fd, count, ::lseek(fd, 0, SEEK_CUR),
                    [&](size_t some) { return next(fd, bytes, some); });
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return write_some(fd, count, at, [&](size_t some) { return next(fd, bytes, some, at); });
}

ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t at) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  return write_some(fd, count, at, [&](size_t some) { return next(fd, bytes, some, at); });
}

int fsync(int fd) {
  static const auto next = real<int (*)(int)>("fsync");
  return sync_some(fd, [&] { return next(fd); });
}

int fdatasync(int fd) {
  static const auto next = real<int (*)(int)>("fdatasync");
  return sync_some(fd, [&] { return next(fd); });
}
}
