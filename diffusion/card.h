// Our own kernels on an NVIDIA card. They are compiled when an engine starts, by the NVRTC that LibTorch brings, for the card
// at hand: who builds the engine needs no CUDA toolkit, and every card that LibTorch serves has them. No LibTorch shows here.
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
  // Queues a kernel of card_kernels.cu behind what LibTorch queued on this device, and returns. `arguments` point at the
  // kernel's arguments, in order. Throws c10::Error where the driver refuses it. Any thread.
  virtual void launch(const std::string& kernel, Grid grid, void** arguments) = 0;
};

// CUDA device `index` with the kernels; takes about a second. kUnavailable says why there are none.
// REQUIRES: LibTorch sees the device.
Result<std::unique_ptr<Card>> open_card(int index);

// The kernels in the machine code of `architecture` ("sm_90") by the NVRTC in `library`, a handle of dlopen().
Result<std::string> compile_kernels(void* library, const std::string& architecture);

}  // namespace skerry::diffusion
