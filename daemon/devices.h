// What this machine can train on: one slot for each GPU, or one for the CPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::daemon {

struct DeviceSlot {
  pb::Slot description;
  int device = -1;  // CUDA device as an engine counts them; −1: CPU
};

// Asks the NVIDIA driver's library where there is one; never needs it. CUDA_VISIBLE_DEVICES is heeded.
// `wanted` ≠ 0: that many slots, over the GPUs in turn.
Result<std::vector<DeviceSlot>> find_slots(unsigned wanted);

}  // namespace skerry::daemon
