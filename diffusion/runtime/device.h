// SPDX-License-Identifier: Apache-2.0
// The device and the numeric settings of the process. Includes LibTorch: for
// this folder only.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "diffusion/model/spec.h"
#include "diffusion/train/snapshot.h"

namespace skerry::diffusion {

// CUDA device `index` where the machine has it, the CPU where it has none or
// index is −1; kInvalid for a card that is not there. Pins the threads that
// operators use and asks for deterministic kernels: both are part of what makes
// bits equal.
Result<torch::Device> open_device(int index, std::uint32_t threads);
// "NVIDIA H200" or "cpu".
std::string device_name(torch::Device device);
// Library, device, threads, precision, form of the state and kernels, the fast
// ones with their generation: equal where equal inputs give equal bytes. On a
// card also CUDA, cuBLAS and cuDNN, whether TF32 is on, and what the
// environment tells them. `kernels`: Kernels::fingerprint() of what is computed
// by.
std::string engine_fingerprint(torch::Device device, const std::string& kernels,
                               const TrainSpec& train);

// Waits until a card has done all that it was asked for; the CPU always has.
void wait_for(torch::Device device);
// The driver's handle of the stream that LibTorch queues on now; nullptr: the
// default one.
void* current_stream(torch::Device device);
// While the result lives, a card copies to and from these bytes of the host by
// itself, at its full speed. nullptr on the CPU and where the driver refuses:
// copies work, slower.
std::shared_ptr<void> pin(void* begin, std::uint64_t bytes, torch::Device device);

// How the device takes part in writing snapshots.
SnapshotDevice snapshot_device(torch::Device device);

// Whether what a body threw means that the device or the host has too little
// memory.
bool is_out_of_memory(const std::exception& error);

// An exception of LibTorch, or of a library that it ships, as an error:
// kExhausted if memory ran out, kCard if the card or its driver failed, else
// kInvalid.
Error error_of(const std::exception& error);

// Runs `body` and turns what it throws into an error, as error_of does.
template <class Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return error_of(error);
  }
}

}  // namespace skerry::diffusion
