// SPDX-License-Identifier: Apache-2.0
// A pretended card for tests: LibTorch's slot for other devices, with memory of
// the host. It computes every operator as on the CPU, counts it, and counts the
// calls that would make a program wait for a card.
//
//   - Its memory faults when touched outside of an operator, has a limit, and
//     holds NaN until it is written.
//   - Streams are those of late_stream.h; events order them. A queued copy from
//     pinned memory runs before the next operator of its stream. One to the
//     host arrives when the program waits; until then the host's copy is NaN.
//   - A program that writes pinned memory under a copy is aborted.
//   - It launches the kernels of card_kernels.cu (emulated_card.h).
//   - open_device() opens it once it is registered.
//
// Include LibTorch's headers first.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

namespace skerry::diffusion::testing {

// Since the last call of forget().
struct CardCounts {
  // Those that compute: copies within the card and launches of our kernels too.
  long operators = 0;
  long launches = 0;       // of our kernels
  long waited_copies = 0;  // copies that return when finished
  long queued_copies = 0;  // copies that return at once
  // reads of one number, which wait for all queued work
  long numbers_read = 0;
  long event_waits = 0;       // for what was queued before a moment that is past
  std::map<int, long> waits;  // for a whole device, by its index
};

// THREADS: any for operators, which take turns; one at a time for the counts.
class PretendedCard {
 public:
  // Registers the device with LibTorch on the first call. There are two.
  static torch::Device device(int index = 0);
  static const CardCounts& counts();
  static void forget();
  // Bytes that tensors of a device hold, and the most since forget().
  static std::size_t held_bytes(int index = 0);
  static std::size_t peak_bytes(int index = 0);
  // Of each device. An allocation above it throws c10::OutOfMemoryError.
  static void set_limit(std::size_t bytes);
  // Sets this thread's current stream of every device, and the driver's handle
  // of all streams. 0: the default stream.
  static void set_stream(std::int64_t id, void* handle);
};

}  // namespace skerry::diffusion::testing
