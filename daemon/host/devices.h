// SPDX-License-Identifier: Apache-2.0
// What this machine can train on: one slot for each card, or one for the CPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/cards.h"
#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::daemon {

struct DeviceSlot {
  pb::Slot description;
  std::string
      card;  // its engine's CUDA_VISIBLE_DEVICES, so that it is device 0 there; empty: the CPU
};

// RETURNS: bytes that the control groups of this process allow it, of version 1
// or 2; without a limit the largest number. A container is most often smaller
// than its machine.
std::uint64_t memory_limit(const std::filesystem::path& cgroups = "/sys/fs/cgroup",
                           const std::filesystem::path& own = "/proc/self/cgroup");

// `wanted` ≠ 0: that many slots, over the cards in turn. Slots of one card, or
// of the CPU, have equal parts of its memory.
// ON FAILURE: kInvalid, beyond protocol::kSlots.
Result<std::vector<DeviceSlot>> make_slots(const std::vector<Card>& cards, unsigned wanted);

// Lists the cards as find_cards() does, in a process of its own. `program` is
// this one, which prints them if it is run with kListCards alone.
// THREADS: any.
// ON FAILURE: as find_cards().
inline constexpr char kListCards[] = "list-cards";
Result<std::vector<std::string>> list_cards(const std::string& program, int stop);
int print_cards();

// Whether this engine can use the cards of a driver of version `driver`: it is
// run to say what it sees, a second or few.
// ON FAILURE: kInvalid, with what to do, where it sees none: it would train on
// the CPU under a card's name; kUnavailable after `stop`. An engine that does
// not answer is let through: what it lacks shows when it is started to train.
Result<void> check_cards(const std::string& engine, const std::string& driver, int stop = -1);

// Has the engine take one training step on each card, or on the CPU where there
// is none. ON FAILURE: kInvalid, with what cannot train and what to do;
// kUnavailable after `stop`.
Result<void> check_training(const std::string& engine, const std::vector<Card>& cards,
                            int stop = -1);

}  // namespace skerry::daemon
