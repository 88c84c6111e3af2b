// SPDX-License-Identifier: Apache-2.0
// Our own kernels on an NVIDIA card. They are compiled when an engine starts,
// by the NVRTC that LibTorch brings, for the card at hand: who builds the
// engine needs no CUDA toolkit, and every card that LibTorch serves has them.
// No LibTorch shows here.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace skerry::diffusion {

// The text of card_kernels.cu.
extern const char* const kCardKernels;

class Card {
 public:
  struct Grid {
    unsigned columns, rows, threads;  // blocks along x and y; threads of a block, a multiple of 32
  };

  virtual ~Card() = default;
  // Queues a kernel of card_kernels.cu on `stream`, the driver's handle of a
  // stream of this device (nullptr: the default one), and returns. `arguments`
  // point at the kernel's arguments, in order.
  // ON FAILURE: c10::Error where the driver refuses it.
  // THREADS: any.
  virtual void launch(const std::string& kernel, Grid grid, void* stream, void** arguments) = 0;
  // What turned the kernels into machine code, if not NVRTC: another version of
  // it may give other bits. Empty: NVRTC.
  virtual std::string translator() const { return ""; }
};

// CUDA device `index` with the kernels; takes about a second. kUnavailable says
// why there are none.
// REQUIRES: LibTorch sees the device.
Result<std::unique_ptr<Card>> open_card(int index);

// What the NVRTC in `library`, a handle of dlopen(), compiles for a card of
// this compute capability (90 for 9.0): its machine code ("sm_90") or, for a
// card that is newer than this NVRTC, PTX of the newest architecture below it
// ("compute_90"), which the driver translates. kUnavailable: the card is older
// than all that it knows.
Result<std::string> architecture_for(void* library, int capability);

// The kernels for such an architecture: machine code of sm_…, PTX of compute_….
Result<std::string> compile_kernels(void* library, const std::string& architecture);

}  // namespace skerry::diffusion
