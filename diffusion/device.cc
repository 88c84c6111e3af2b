#include "diffusion/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>

#include "base/text.h"
#include "diffusion/card_fused.h"
#include "diffusion/product.h"
#include "diffusion/runtime.h"

namespace skerry::diffusion {
namespace {

// A training step frees and takes the same blocks again and again; giving them back to the system between costs a sixth
// of the step in page faults.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

void pin_threads(std::uint32_t threads) {
  static std::once_flag once;
  std::call_once(once, [] {
    at::set_num_interop_threads(1);
    keep_freed_memory();
  });
  at::set_num_threads(static_cast<int>(threads));
}

// Asked of the driver, which LibTorch has loaded by now: its headers for this need a CUDA toolkit. Empty: not known.
std::string card_name(int index) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return "";
  const auto device_of = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto name_of = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  int device = 0;
  std::array<char, 128> name{};
  const bool known = device_of && name_of && device_of(&device, index) == 0 &&
                     name_of(name.data(), static_cast<int>(name.size()), device) == 0;
  ::dlclose(driver);
  return known ? name.data() : "";
}

// "for CUDA 13.0" or "without CUDA": what LibTorch was built with, whatever this machine has.
std::string cuda_words() {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (!hooks.hasCUDART()) return "without CUDA";
  const long version = hooks.versionCUDART();  // 13000 for 13.0
  return text("for CUDA ", version / 1000, ".", version % 1000 / 10);
}

}  // namespace

Result<torch::Device> open_device(int index, std::uint32_t threads) {
  pin_threads(threads);
  const int cards = torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
  if (index < 0 || cards == 0) return torch::Device(torch::kCPU);
  if (index >= cards) {
    return fail(ErrorCode::kInvalid, text("no CUDA device ", index, ": this machine has ", cards));
  }
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Nothing here reads it, and each fill is a kernel.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

// LibTorch's host allocator throws its general error, and TorchScript another for all that it runs: only the words tell.
bool is_out_of_memory(const std::exception& error) {
  const std::string_view words = error.what();
  const auto says = [words](std::string_view what) { return words.find(what) != std::string_view::npos; };
  // Of the host, a card, pinned memory and a launch.
  constexpr std::array kAllocators{"DefaultCPUAllocator: can't allocate memory", "CUDA out of memory",
                                   "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY"};
  // oneDNN's, of a product that it has a way to compute and no room for.
  constexpr std::array kOneDnn{"could not create a primitive", "could not create a memory object",
                               "could not execute a primitive"};
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::any_of(kAllocators.begin(), kAllocators.end(), says) ||
         std::find(kOneDnn.begin(), kOneDnn.end(), words) != kOneDnn.end();
}

std::string runtime_words() {
  const int cards = torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
  const std::string devices =
      cards == 0 ? "no CUDA device" : text(cards, " CUDA device", cards == 1 ? "" : "s");
  return text("LibTorch ", TORCH_VERSION, " ", cuda_words(), ", ", devices);
}

std::string device_name(torch::Device device) {
  if (device.is_cpu()) return "cpu";
  const std::string name = card_name(device.index());
  return name.empty() ? text("cuda:", device.index()) : name;
}

// Of the fast loops and kernels: raised whenever one of them gives other bits than before. The first had neither kernels of
// ours on a card nor bf16 between products on the CPU.
constexpr int kFastGeneration = 2;

std::string engine_fingerprint(torch::Device device, const ModelSpec& model, const TrainSpec& train) {
  const std::uint32_t rows = rows_at_a_time(train);
  const bool fast =
      train.kernels == Kernels::kFast && (device.is_cpu() || card::of(device, model) != nullptr);
  const bool rounded = train.precision == "bf16" && device.is_cpu() && !cpu_multiplies_bf16();
  return text("torch ", TORCH_VERSION, " · ", device_name(device), " · ", at::get_cpu_capability(), " ",
              cpu_linear_name(), " · threads ", train.threads, " · ", train.precision,
              rounded ? " rounded" : "", train.state == StateForm::kLean ? " · lean" : "",
              fast ? text(" · fast ", kFastGeneration) : "",
              rows < train.batch_size ? text(" · micro-batch ", rows) : "");
}

}  // namespace skerry::diffusion
