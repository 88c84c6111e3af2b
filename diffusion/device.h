// The device and the numeric settings of the process. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "diffusion/spec.h"

namespace skerry::diffusion {

// CUDA device `index` where the machine has it, the CPU where it has none or index is −1; kInvalid for a card
// that is not there. Pins the threads that operators use and asks for deterministic kernels: both are part of
// what makes bits equal.
Result<torch::Device> open_device(int index, std::uint32_t threads);
// "NVIDIA H200" or "cpu".
std::string device_name(torch::Device device);
// Library, device, threads, precision, form of the state and kernels, the fast ones with their generation: equal where equal
// inputs give equal bytes.
std::string engine_fingerprint(torch::Device device, const ModelSpec& model, const TrainSpec& train);

// Whether what a body threw means that the device or the host has too little memory.
bool is_out_of_memory(const std::exception& error);

// Runs `body`, turning the exceptions of LibTorch and of what it ships into errors: kExhausted where memory ran out,
// kInvalid for all else.
template <class Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return fail(is_out_of_memory(error) ? ErrorCode::kExhausted : ErrorCode::kInvalid,
                error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "out of memory on the host");
  } catch (const std::exception& error) {  // oneDNN's
    return fail(is_out_of_memory(error) ? ErrorCode::kExhausted : ErrorCode::kInvalid, error.what());
  }
}

}  // namespace skerry::diffusion
