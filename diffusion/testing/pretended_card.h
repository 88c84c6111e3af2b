// SPDX-License-Identifier: Apache-2.0
// A card without a card, for tests: LibTorch's place for other devices, with
// memory of the host. Every operator is computed as on the CPU; what would make
// a program wait for a card is counted. LibTorch's headers must come first.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

namespace skerry::diffusion::testing {

// Since the last call of forget().
struct CardCounts {
  long waited_copies = 0;     // copies that return once they are done
  long queued_copies = 0;     // copies that return at once
  long numbers_read = 0;      // one number each, which waits for all that was queued
  std::map<int, long> waits;  // for a whole device, by its index
};

// THREADS: one at a time, as its users.
class PretendedCard {
 public:
  // Registers the device with LibTorch when it is first asked for. There are
  // two.
  static torch::Device device(int index = 0);
  static const CardCounts& counts();
  static void forget();
  // The stream that is current on every device, and the driver's handle of it.
  // 0: the default stream.
  static void set_stream(std::int64_t id, void* handle);
};

}  // namespace skerry::diffusion::testing
