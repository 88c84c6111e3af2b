// SPDX-License-Identifier: Apache-2.0
// Tests whether an engine can train on each card of this machine, for `skerry
// doctor` and for a daemon that joins. The engine may have no kernels for a
// card, and only a training step shows it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cards.h"
#include "base/cuda_driver.h"

namespace skerry {

using RunProgram = std::function<Result<int>(const std::vector<std::string>& words,
                                             const OnLine& on_line, const RunOptions& options)>;

// Makes `engine` take one small training step on each card, alone, as a
// daemon's engine is; on the CPU if there is no card. Takes seconds a card.
// RETURNS: a trouble for each device that cannot train.
// ON FAILURE: only after `options.stop`; its limit is for each step.
Result<std::vector<CardTrouble>> try_training(const std::string& engine,
                                              const std::vector<Card>& cards, const RunProgram& run,
                                              const RunOptions& options);

}  // namespace skerry
