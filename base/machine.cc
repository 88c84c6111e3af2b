// SPDX-License-Identifier: Apache-2.0
#include "base/machine.h"

#include <fstream>

namespace skerry {

// Not /etc/machine-id: images that were copied share it, and containers often
// have none.
std::string machine_label() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string label;
  file >> label;
  return label;
}

}  // namespace skerry
