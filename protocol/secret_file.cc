// SPDX-License-Identifier: Apache-2.0
#include "protocol/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/unique_fd.h"

namespace skerry::protocol {
namespace {

constexpr std::size_t kLimitBytes = 64 << 10;

Error os_error(const std::filesystem::path& path, std::string_view doing) {
  const int number = errno;
  const std::string message =
      text("cannot ", doing, " ", path.string(), ": ", std::strerror(number));
  if (number == ENOENT) return fail(ErrorCode::kNotFound, message);
  if (number == EACCES || number == EPERM) return fail(ErrorCode::kUnauthorised, message);
  return fail(ErrorCode::kIo, message);
}

Result<void> write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t wrote = ::write(fd, content.data(), content.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return os_error(path, "write");
    content.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

Result<void> sync_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return os_error(folder, "sync");
  return {};
}

}  // namespace

Result<std::string> read_secret_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK the opening of a pipe would wait for a writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return os_error(path, "open");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return os_error(path, "read");
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kInvalid, text(path.string(), " is no file: expected one with a key"));
  if ((info.st_mode & 077) != 0) {
    log_warning("others can read a file that holds a key",
                {{"file", path.string()}, {"do", "chmod 600"}});
  }
  std::string content(kLimitBytes + 1, '\0');
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path, "read");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kLimitBytes)
    return fail(ErrorCode::kCorrupt, text(path.string(), " is too large to be a key file"));
  content.resize(size);
  return content;
}

Result<void> write_secret_file(const std::filesystem::path& path, std::string_view content) {
  std::string temporary = path.string() + ".XXXXXX";
  const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (!fd) return os_error(path, "create");
  auto written = write_all(fd.get(), content, path);
  if (written && ::fsync(fd.get()) != 0) written = os_error(path, "sync");
  if (written && ::rename(temporary.c_str(), path.c_str()) != 0) written = os_error(path, "write");
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_folder(path);
}

}  // namespace skerry::protocol
