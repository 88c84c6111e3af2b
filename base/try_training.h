// SPDX-License-Identifier: Apache-2.0
// Whether an engine can train on each card of this machine: for people who look
// at it (`skerry doctor`) and for a daemon that joins. A card may be there that
// the engine has no kernels for, and only a step shows it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cards.h"
#include "base/cuda_driver.h"

namespace skerry {

using RunProgram = std::function<Result<int>(const std::vector<std::string>& words,
                                             const OnLine& on_line, const RunOptions& options)>;

// Has `engine` take one small training step on each card, alone as a daemon's
// engine is; on the CPU where there is none. Seconds a card. RETURNS: what
// failed, a trouble for each device that cannot train.
// ON FAILURE: only what `options.stop` brings; its limit is for each step.
Result<std::vector<CardTrouble>> try_training(const std::string& engine,
                                              const std::vector<Card>& cards, const RunProgram& run,
                                              const RunOptions& options);

}  // namespace skerry
