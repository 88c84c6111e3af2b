// SPDX-License-Identifier: Apache-2.0
// Our own kernels on an NVIDIA card. An engine compiles them for its card at
// start, with the NVRTC that LibTorch ships. So a build of the engine needs no
// CUDA toolkit, and the kernels run on every card that LibTorch supports. Does
// not include LibTorch.
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
  // Queues a kernel of card_kernels.cu on `stream` and returns. `stream` is the
  // driver's handle of a stream of this device; nullptr: the default one.
  // `arguments` point at the kernel's arguments, in order.
  // ON FAILURE: c10::Error if the driver refuses it.
  // THREADS: any.
  virtual void launch(const std::string& kernel, Grid grid, void* stream, void** arguments) = 0;
  // RETURNS: the compiler of the kernels' machine code, if not NVRTC: another
  // version may give other bits. Empty: NVRTC.
  virtual std::string translator() const { return ""; }
};

// The hooks of a device in LibTorch's slot for others are this too if the
// device launches our kernels.
class CardMaker {
 public:
  virtual ~CardMaker() = default;
  virtual std::unique_ptr<Card> make_card(int index) const = 0;
};

// Opens CUDA device `index` with the kernels; takes about a second.
// REQUIRES: LibTorch sees the device.
// ON FAILURE: kUnavailable says why there are none.
Result<std::unique_ptr<Card>> open_card(int index);

// RETURNS: the target that the NVRTC in `library`, a handle of dlopen(),
// compiles to for a card of this compute capability (90 for 9.0). It is machine
// code ("sm_90"). For a card newer than this NVRTC it is PTX of the newest
// architecture below it ("compute_90"), which the driver translates.
// ON FAILURE: kUnavailable: the card is older than all that NVRTC knows.
Result<std::string> architecture_for(void* library, int capability);

// RETURNS: the kernels for such an architecture: machine code for sm_…, PTX for
// compute_….
Result<std::string> compile_kernels(void* library, const std::string& architecture);

}  // namespace skerry::diffusion
