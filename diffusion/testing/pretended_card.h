// SPDX-License-Identifier: Apache-2.0
// A pretended card for tests: LibTorch's slot for other devices, with memory of
// the host. It computes every operator as on the CPU, and counts the calls that
// would make a program wait for a card. Include LibTorch's headers first.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

namespace skerry::diffusion::testing {

// Since the last call of forget().
struct CardCounts {
  long waited_copies = 0;  // copies that return when finished
  long queued_copies = 0;  // copies that return at once
  // reads of one number, which wait for all queued work
  long numbers_read = 0;
  std::map<int, long> waits;  // for a whole device, by its index
};

// THREADS: one at a time, as for its users.
class PretendedCard {
 public:
  // Registers the device with LibTorch on the first call. There are two.
  static torch::Device device(int index = 0);
  static const CardCounts& counts();
  static void forget();
  // Sets the current stream of every device, and the driver's handle of it. 0:
  // the default stream.
  static void set_stream(std::int64_t id, void* handle);
};

}  // namespace skerry::diffusion::testing
