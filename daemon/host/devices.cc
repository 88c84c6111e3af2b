// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/devices.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <utility>

#include "base/cuda_driver.h"
#include "base/log.h"
#include "base/text.h"
#include "base/try_training.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

// LibTorch is gigabytes that a cold disk may take minutes to read; a first step
// also makes a card ready.
constexpr Duration kVersionLimit = std::chrono::minutes(2);
constexpr Duration kStepLimit = std::chrono::minutes(10);
constexpr Duration kListLimit = std::chrono::seconds(90);  // beyond find_cards()'s own
constexpr char kListed[] = "all are listed";

std::uint64_t physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long size = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size)
             : 0;
}

}  // namespace

// A line of `own` is "number:controllers:group". A container may see its own
// group as the root, so each group above counts, as far as it is there.
std::uint64_t memory_limit(const std::filesystem::path& cgroups, const std::filesystem::path& own) {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::ifstream lines(own);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_second_version = controllers.empty();
    if (!is_second_version && controllers != "memory") continue;
    const std::filesystem::path root = is_second_version ? cgroups : cgroups / "memory";
    const char* const name = is_second_version ? "memory.max" : "memory.limit_in_bytes";
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      std::uint64_t limit = 0;  // "max" is not a number
      if (std::ifstream(root / group / name) >> limit) least = std::min(least, limit);
      if (group.empty()) break;
    }
  }
  return least;
}

Result<std::vector<DeviceSlot>> make_slots(const std::vector<Card>& cards, unsigned wanted) {
  if (wanted > protocol::kSlots) {
    return fail(ErrorCode::kInvalid,
                text("slots: expected at most ", protocol::kSlots, ", found ", wanted));
  }
  const std::size_t devices = std::max<std::size_t>(1, cards.size());
  const std::size_t count = std::min<std::size_t>(wanted != 0 ? wanted : devices, protocol::kSlots);
  std::vector<DeviceSlot> slots(count);
  for (std::size_t i = 0; i < count; ++i) {
    DeviceSlot& slot = slots[i];
    const std::size_t device = i % devices;
    const std::size_t sharers = count / devices + (device < count % devices ? 1 : 0);
    slot.description.set_index(static_cast<std::uint32_t>(i));
    slot.description.set_device(cards.empty() ? "cpu" : cards[device].name);
    const std::uint64_t memory =
        cards.empty() ? std::min(physical_memory(), memory_limit()) : cards[device].memory_bytes;
    slot.description.set_memory_bytes(memory / sharers);
    if (!cards.empty()) slot.card = cards[device].id;
    const bool is_slice = slot.card.starts_with("MIG-");  // CUDA shows one at most
    slot.description.set_alone(!cards.empty() && (sharers > 1 || is_slice));
  }
  return slots;
}

Result<std::vector<std::string>> list_cards(const std::string& program, int stop) {
  std::vector<std::string> ids;
  bool is_done = false;
  // Its status is not looked at: the loop may have waited for it first.
  (void)run_and_read({program, kListCards},
                     [&](const std::string& line) {
                       if (line == kListed) {
                         is_done = true;
                       } else {
                         ids.push_back(line);
                       }
                     },
                     {.limit = kListLimit, .stop = stop});
  if (is_done) return ids;
  return fail(ErrorCode::kUnavailable, "CUDA does not list them; the log says why");
}

int print_cards() {
  const Result<std::vector<Card>> cards = find_cards();
  if (!cards) {
    log_warning(cards.error().message);
    return 1;
  }
  for (const Card& card : *cards) std::printf("%s\n", card.id.c_str());
  std::printf("%s\n", kListed);
  return 0;
}

Result<void> check_cards(const std::string& engine, const std::string& driver, int stop) {
  std::string words;
  const Result<int> ran = run_and_read({engine, "--version"},
                                       [&](const std::string& line) {
                                         if (words.empty()) words = line;
                                       },
                                       {.limit = kVersionLimit, .stop = stop});
  if (!ran && ran.error().code == ErrorCode::kUnavailable) return ran.error();
  if (!ran || *ran != 0) {
    log_warning("the engine does not say which cards it can use", {{"engine", engine}});
    return {};
  }
  if (const auto trouble = why_no_card(words, driver)) {
    return fail(
        ErrorCode::kInvalid,
        text("this machine has a card, and the engine sees none: ", trouble->found, ": ",
             trouble->todo, "; to train on the CPU instead, set CUDA_VISIBLE_DEVICES to nothing"));
  }
  return {};
}

Result<void> check_training(const std::string& engine, const std::vector<Card>& cards, int stop) {
  ASSIGN_OR_RETURN(const std::vector<CardTrouble> troubles,
                   try_training(engine, cards, run_and_read, {.limit = kStepLimit, .stop = stop}));
  if (troubles.empty()) return {};
  std::string words;
  for (const CardTrouble& trouble : troubles)
    words += text(words.empty() ? "" : "\n", trouble.found, "; ", trouble.todo);
  return fail(ErrorCode::kInvalid, std::move(words));
}

}  // namespace skerry::daemon
