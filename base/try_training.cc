// SPDX-License-Identifier: Apache-2.0
#include "base/try_training.h"

#include <algorithm>

#include "base/text.h"

namespace skerry {
namespace {

struct Failure {
  const Card* card;  // null: the CPU
  std::string words;
};

// The identifiers of the cards that took their step, as CUDA_VISIBLE_DEVICES
// takes them.
std::string well(const std::vector<Card>& cards, const std::vector<Failure>& failures) {
  std::string list;
  for (const Card& card : cards) {
    const auto is_it = [&](const Failure& failure) { return failure.card == &card; };
    if (std::none_of(failures.begin(), failures.end(), is_it))
      list += (list.empty() ? "" : ",") + card.id;
  }
  return list;
}

CardTrouble trouble_of(const Failure& failure, const std::string& rest) {
  if (failure.card == nullptr) {
    return {text("cannot train on the CPU: expected one training step, found: ", failure.words),
            "build the engine for this machine: `./dev build`"};
  }
  const Card& card = *failure.card;
  const bool is_too_old = failure.words.find("no kernel image") != std::string::npos;
  return {
      text("cannot train on ", card.name, " (", card.id, ", compute capability ", card.capability,
           "): expected one training step, found: ", failure.words),
      text(is_too_old
               ? "rent a machine with a newer card, or build the engine against a LibTorch of an "
                 "older CUDA: `./dev setup --torch DIR`"
               : "look for Xid in `dmesg`, restart the machine or rent another",
           rest.empty()
               ? "; to train on the CPU instead, set CUDA_VISIBLE_DEVICES to nothing"
               : text("; to train on the other cards alone, set CUDA_VISIBLE_DEVICES=", rest))};
}

}  // namespace

Result<std::vector<CardTrouble>> try_training(const std::string& engine,
                                              const std::vector<Card>& cards, const RunProgram& run,
                                              const RunOptions& options) {
  std::vector<Failure> failures;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, cards.size()); ++i) {
    const Card* const card = cards.empty() ? nullptr : &cards[i];
    RunOptions alone = options;
    if (card != nullptr) alone.environment.push_back(text("CUDA_VISIBLE_DEVICES=", card->id));
    std::string words;
    const auto keep_first = [&](const std::string& line) {
      if (words.empty()) words = line;
    };
    const Result<int> ran =
        run({engine, "check", "--device", card == nullptr ? "-1" : "0"}, keep_first, alone);
    if (ran && *ran == 0) continue;
    if (!ran && ran.error().code == ErrorCode::kUnavailable) return ran.error();
    if (!ran) words = ran.error().message;
    if (words.empty()) words = text(engine, " check ended with status ", *ran);
    failures.push_back({card, words});
  }
  std::vector<CardTrouble> troubles;
  for (const Failure& failure : failures)
    troubles.push_back(trouble_of(failure, well(cards, failures)));
  return troubles;
}

}  // namespace skerry
