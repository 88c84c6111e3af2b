// SPDX-License-Identifier: Apache-2.0
#include "storage/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>

#include "storage/files.h"

namespace skerry::storage {

Result<UniqueFd> lock_folder(const std::string& folder, const std::string& busy) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return system_error("make the folder", folder, error.value());
  UniqueFd held(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!held) return system_error("open", folder, errno);
  if (::flock(held.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return fail(ErrorCode::kConflict, busy);
    return system_error("lock", folder, errno);
  }
  return held;
}

}  // namespace skerry::storage
