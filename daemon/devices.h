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

// The version of the driver of the cards that an engine may see, "570.124.06"; "unknown" where it does not say. Empty: there
// is no card, or CUDA_VISIBLE_DEVICES hides them all, which is how a person asks for the CPU.
std::string visible_driver();

// Whether this engine can use the cards of a driver of version `driver`: it is run to say what it sees, a second or few.
// kInvalid, with what to do, where it sees none: it would train on the CPU under a card's name. An engine that does not
// answer is let through: what it lacks shows when it is started to train.
Result<void> check_cards(const std::string& engine, const std::string& driver);

}  // namespace skerry::daemon
