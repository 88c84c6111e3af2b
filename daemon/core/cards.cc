// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/cards.h"

#include <algorithm>

#include "base/check.h"

namespace skerry::daemon {

bool Cards::are_free(const SlotIndices& slots, std::uint64_t engine) const {
  return std::ranges::all_of(slots, [&](std::uint32_t slot) {
    const auto at = engines_.find(slot);
    return at == engines_.end() || at->second == engine;
  });
}

void Cards::take(std::uint64_t engine, const SlotIndices& slots) {
  SKERRY_CHECK(are_free(slots), "another engine has a card of these");
  for (const std::uint32_t slot : slots) engines_[slot] = engine;
}

void Cards::leave(std::uint64_t engine) {
  std::erase_if(engines_, [&](const auto& each) { return each.second == engine; });
  std::erase_if(stuck_, [&](const auto& each) { return each.second == engine; });
}

void Cards::stuck(std::uint64_t engine, std::uint32_t slot) {
  for (const auto& [its, user] : engines_) {
    if (user == engine && its != slot) stuck_[its] = engine;
  }
}

}  // namespace skerry::daemon
