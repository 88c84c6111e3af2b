// SPDX-License-Identifier: Apache-2.0
// The NVIDIA cards of this machine, as CUDA shows them to a process of this
// environment. CUDA itself is asked, in a child process: it alone knows its
// order and its rules for CUDA_VISIBLE_DEVICES, and the process that asks gets
// no CUDA context and cannot be held by a driver that hangs.
// THREADS: find_cards() forks without exec: no other thread of the process may
// run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/programs.h"
#include "base/result.h"

namespace skerry {

struct Card {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string
      id;  // "GPU-…" or "MIG-…": alone in CUDA_VISIBLE_DEVICES, it makes this card CUDA's device 0
  std::uint64_t memory_bytes = 0;  // of a MIG instance: its own
  std::string capability;          // compute capability, "9.0"
};

// Where to look, and how long.
struct CardSearch {
  std::string library = "libcuda.so.1";
  std::string devices = "/dev";  // has nvidia0, … where a card was passed into a container
  RunOptions options{.limit = std::chrono::seconds(60)};
};

// RETURNS: the cards in CUDA's order, without those that CUDA cannot describe,
// which the log names. None: the machine has none, or CUDA_VISIBLE_DEVICES asks
// for the CPU (empty, -1 or NoDevFiles).
// ON FAILURE: in three parts. kInvalid: there is a card that CUDA does not
// show, since libcuda is missing or CUDA_VISIBLE_DEVICES names another;
// kUnavailable: CUDA fails; also `stop`; kTimeout: CUDA did not answer.
Result<std::vector<Card>> find_cards(const CardSearch& search = {});

// Of the kernel's driver, "570.124.06"; "unknown" where it does not say.
std::string driver_version();

}  // namespace skerry
