// SPDX-License-Identifier: Apache-2.0
// Lists the NVIDIA cards of this machine as CUDA shows them to a process of
// this environment. A child process asks CUDA, which alone knows its order and
// its rules for CUDA_VISIBLE_DEVICES. So the calling process gets no CUDA
// context, and a driver that hangs cannot block it.
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
  // "GPU-…" or "MIG-…"; as the only entry of CUDA_VISIBLE_DEVICES it makes this
  // card CUDA's device 0
  std::string id;
  std::uint64_t memory_bytes = 0;  // of a MIG instance: its own share
  std::string capability;          // compute capability, "9.0"
};

// Where to search, and how long.
struct CardSearch {
  std::string library = "libcuda.so.1";
  std::string devices = "/dev";  // has nvidia0, … if a container got a card
  RunOptions options{.limit = std::chrono::seconds(60)};
};

// RETURNS: the cards in CUDA's order, without those that CUDA cannot describe,
// which the log names. None: the machine has none, or CUDA_VISIBLE_DEVICES asks
// for the CPU (empty, -1 or NoDevFiles).
// ON FAILURE: the message has three parts.
// - kInvalid: CUDA does not show a card that exists, since libcuda is missing
//   or CUDA_VISIBLE_DEVICES names another. Or that list begins with a word that
//   is neither an index nor an identifier.
// - kUnavailable: CUDA fails, or `stop` is readable.
// - kTimeout: CUDA did not answer.
Result<std::vector<Card>> find_cards(const CardSearch& search = {});

// RETURNS: the version of the kernel's driver, "570.124.06"; "unknown" if it
// does not report one.
std::string driver_version();

}  // namespace skerry
