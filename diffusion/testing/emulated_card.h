// SPDX-License-Identifier: Apache-2.0
// Emulates a card for tests of card_kernels.cu: one thread of the machine for
// each thread of a block, block after block. The same text computes on tensors
// of the CPU.
//
// THREADS: one launch at a time in a process.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "diffusion/kernels/card.h"

namespace skerry::diffusion::emulated {

using Kernel = std::function<void(void** arguments)>;

class EmulatedCard : public Card {
 public:
  EmulatedCard();
  const std::map<std::string, Kernel>& kernels() const { return kernels_; }

  void launch(const std::string& name, Grid grid, void* stream, void** arguments) override;

 private:
  std::map<std::string, Kernel> kernels_;
};

}  // namespace skerry::diffusion::emulated
