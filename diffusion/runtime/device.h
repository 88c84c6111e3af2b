// SPDX-License-Identifier: Apache-2.0
// The device and the numeric settings of the process. Includes LibTorch: for
// this folder only.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "diffusion/train/snapshot.h"
#include "model/spec.h"

namespace skerry::diffusion {

// Opens CUDA device `index`, or that of another kind that is registered
// with LibTorch. Opens the CPU if the machine has no card or index
// is −1. Sets the number of threads for operators and selects deterministic
// kernels; equal bits depend on both.
// ON FAILURE: kInvalid for a card that does not exist.
Result<torch::Device> open_device(int index, std::uint32_t threads);
// "NVIDIA H200" or "cpu".
std::string device_name(torch::Device device);
// RETURNS: library, device, threads, precision, form of the state, and kernels
// with the generation of fast ones. Equal fingerprints and equal inputs give
// equal bytes. On a card it also names CUDA, cuBLAS and cuDNN, whether TF32 is
// on, and their settings in the environment. `kernels`: Kernels::fingerprint()
// of those in use.
std::string engine_fingerprint(torch::Device device, const std::string& kernels,
                               const TrainSpec& train);

// Waits until a card has finished all queued work; returns at once on the CPU.
void wait_for(torch::Device device);
// RETURNS: the driver's handle of the stream that LibTorch uses now; nullptr:
// the default one.
void* current_stream(torch::Device device);
// While the result lives, a card copies to and from these host bytes directly,
// at its full speed.
// RETURNS: nullptr on the CPU, or if the driver refuses. Copies then work, but
// slower.
std::shared_ptr<void> pin(void* begin, std::uint64_t bytes, torch::Device device);

// RETURNS: the device's part in writing snapshots.
SnapshotDevice snapshot_device(torch::Device device);

// RETURNS: whether the exception means that the device or the host is out of
// memory.
bool is_out_of_memory(const std::exception& error);

// Turns an exception of LibTorch, or of a library that it ships, into an error.
// RETURNS: kExhausted if out of memory, kCard if the card or its driver failed,
// else kInvalid.
Error error_of(const std::exception& error);

// Runs `body` and turns an exception into an error, as error_of() does.
template <class Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return error_of(error);
  }
}

}  // namespace skerry::diffusion
