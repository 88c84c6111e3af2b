// SPDX-License-Identifier: Apache-2.0
// Emulates a card for tests of card_kernels.cu. Block runs after block. In a
// block, warp runs after warp, each as far as it can go without the others. The
// same text computes on tensors of the CPU.
//
// THREADS: any; launches of a process take turns.
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
