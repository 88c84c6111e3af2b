// SPDX-License-Identifier: Apache-2.0
#include "base/unique_fd.h"

#include <unistd.h>

namespace skerry {

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace skerry
