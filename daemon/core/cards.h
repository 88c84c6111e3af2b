// SPDX-License-Identifier: Apache-2.0
// The cards of a node's slots: which engine trains on which, and which are
// lost. An engine may have the cards of several slots. Part of the core.
//
// Invariant: no card has two engines.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "protocol/skerry.pb.h"

namespace skerry::daemon {

using SlotIndices = std::vector<std::uint32_t>;

class Cards {
 public:
  explicit Cards(const std::vector<pb::Slot>& slots) {
    for (const pb::Slot& slot : slots) there_.insert(slot.index());
  }

  bool is_usable(std::uint32_t slot) const { return there_.contains(slot) && !is_lost(slot); }
  bool is_lost(std::uint32_t slot) const { return lost_.contains(slot) || stuck_.contains(slot); }
  // Replaces what was counted before.
  void counted(const SlotIndices& lost) { lost_ = {lost.begin(), lost.end()}; }

  // Whether no other engine than this one has a card of these.
  bool are_free(const SlotIndices& slots, std::uint64_t engine = 0) const;
  // REQUIRES: are_free(slots).
  void take(std::uint64_t engine, const SlotIndices& slots);
  void leave(std::uint64_t engine);
  // The engine of `slot` does not end: its other cards are lost until it does.
  void stuck(std::uint64_t engine, std::uint32_t slot);

 private:
  std::set<std::uint32_t> there_;
  std::set<std::uint32_t> lost_;
  std::map<std::uint32_t, std::uint64_t> stuck_;    // slot → engine
  std::map<std::uint32_t, std::uint64_t> engines_;  // by slot
};

}  // namespace skerry::daemon
