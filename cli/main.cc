// SPDX-License-Identifier: Apache-2.0
// skerry: what people and scripts say to a coordinator.
#include <cstdlib>

#include "base/log.h"
#include "cli/shell/app.h"
#include "cli/shell/real_surroundings.h"

int main(int count, char** words) {
  skerry::init_log("skerry", skerry::LogLevel::kWarning);
  const auto around = skerry::cli::real_surroundings();
  return skerry::cli::run_cli({words + 1, words + count}, *around);
}
