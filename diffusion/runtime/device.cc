// SPDX-License-Identifier: Apache-2.0
#include "diffusion/runtime/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>

#include "base/cuda_library.h"
#include "base/log.h"
#include "base/text.h"
#include "diffusion/kernels/product.h"
#include "diffusion/runtime/runtime.h"

namespace skerry::diffusion {
namespace {

// A training step frees and allocates the same blocks again and again. If they
// went back to the system in between, page faults would take a sixth of the
// step.
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

// Blocks of a card's memory that grow: else memory that is free in pieces
// serves no large tensor. LibTorch reads the first of these variables that is
// set, the second since 2.9, when it first asks a card for memory.
void grow_segments(bool cards_can) {
  const bool user_chose = std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr ||
                          std::getenv("PYTORCH_ALLOC_CONF") != nullptr;
  if (!user_chose && cards_can) ::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 0);
}

// Some virtual cards cannot map memory, and WSL2 (/dev/dxg) says that it can
// and fails: an allocation fails there at once.
bool cards_map_memory() {
  constexpr int kMapsMemory = 102;  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  if (::access("/dev/dxg", F_OK) == 0) return false;
  const CudaLibrary driver;
  int count = 0;
  if (!driver.is_there() || driver.call("cuInit", 0U) != 0 ||
      driver.call("cuDeviceGetCount", &count) != 0)
    return true;
  for (int i = 0; i < count; ++i) {
    int device = 0, maps = 1;
    if (driver.call("cuDeviceGet", &device, i) == 0 &&
        driver.call("cuDeviceGetAttribute", &maps, kMapsMemory, device) == 0 && maps == 0)
      return false;
  }
  return true;
}

// A container image may request TF32 for fp32 products: NVIDIA's images set
// TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1. cuDNN uses TF32 unless told otherwise.
void forbid_tf32() {
  at::globalContext().setFloat32MatmulPrecision("highest");
  at::globalContext().setAllowTF32CuDNN(false);
}

constexpr const char* kWorkspaces = "CUBLAS_WORKSPACE_CONFIG";
constexpr const char* kOurWorkspaces = ":4096:8";

// A function of a library that LibTorch has loaded, whose headers come with a
// CUDA toolkit; nullptr: it is not there.
template <class Signature>
Signature* find_loaded(const char* name) {
  return reinterpret_cast<Signature*>(::dlsym(RTLD_DEFAULT, name));
}

// " · CUDA 13.0 · cuBLAS 13.1.0 · cuDNN 9.19.0"
std::string library_words() {
  const long cuda =
      at::detail::getCUDAHooks().hasCUDART() ? at::detail::getCUDAHooks().versionCUDART() : 0;
  std::string words = text(" · CUDA ", cuda / 1000, ".", cuda % 1000 / 10);
  std::array<int, 3> blas{};  // major, minor, patch: cuBLAS numbers its properties so
  if (const auto property = find_loaded<int(int, int*)>("cublasGetProperty")) {
    for (int i = 0; i < 3; ++i) (void)property(i, &blas[static_cast<std::size_t>(i)]);
    words += text(" · cuBLAS ", blas[0], ".", blas[1], ".", blas[2]);
  }
  if (const auto version = find_loaded<std::size_t()>("cudnnGetVersion")) {
    const std::size_t dnn = version();  // 91900 for 9.19.0
    words += text(" · cuDNN ", dnn / 10000, ".", dnn / 100 % 100, ".", dnn % 100);
  }
  return words;
}

// The environment variables that these libraries, or LibTorch for them, read
// and that change bits; empty: none is set.
std::string environment_words() {
  constexpr std::size_t kMostBytes = 32;  // of a value
  std::string words;
  for (const char* name :
       {"NVIDIA_TF32_OVERRIDE", "TORCH_BLAS_PREFER_CUBLASLT", "DISABLE_ADDMM_CUDA_LT", kWorkspaces,
        "CUBLASLT_WORKSPACE_SIZE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY",
        "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "TORCH_CUDNN_SDPA_DEPRIORITIZED"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || (name == kWorkspaces && std::string_view(value) == kOurWorkspaces))
      continue;
    words += text(" · ", name, "=", std::string_view(value).substr(0, kMostBytes));
  }
  return words;
}

// Asked of the driver, which LibTorch has loaded by now: its headers for this
// need a CUDA toolkit. Empty: not known.
std::string card_name(int index) {
  const CudaLibrary driver;
  int device = 0;
  std::array<char, 128> name{};
  const bool known =
      driver.is_there() && driver.call("cuDeviceGet", &device, index) == 0 &&
      driver.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()), device) == 0;
  return known ? name.data() : "";
}

// "for CUDA 13.0" or "without CUDA": what LibTorch was built with, whatever
// this machine has.
std::string cuda_words() {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (!hooks.hasCUDART()) return "without CUDA";
  const long version = hooks.versionCUDART();  // 13000 for 13.0
  return text("for CUDA ", version / 1000, ".", version % 1000 / 10);
}

// The line of an error of CUDA or its libraries that reports a failed card or
// driver; empty: none does.
std::string_view card_fault_in(std::string_view words) {
  constexpr std::array<std::string_view, 16> kFaults{"CUDA error",
                                                     "CUDA driver error",
                                                     "CUDA_ERROR_",
                                                     "CUBLAS_STATUS_",
                                                     "CUDNN_STATUS_",
                                                     "cuDNN error",
                                                     "mha_graph",
                                                     "unable to find an engine",
                                                     "CUSOLVER_STATUS_",
                                                     "NCCL error",
                                                     "illegal memory access",
                                                     "device-side assert",
                                                     "unspecified launch failure",
                                                     "uncorrectable ECC error",
                                                     "fallen off the bus",
                                                     "from cudaGetDeviceCount"};
  for (const std::string_view fault : kFaults) {
    const std::size_t at = words.find(fault);
    if (at == std::string_view::npos) continue;
    const std::size_t begin = words.rfind('\n', at) + 1;  // 0 in the first line
    return words.substr(begin, words.find('\n', at) - begin);
  }
  return {};
}

// CUDA's, unless a device is registered in LibTorch's slot for others.
c10::DeviceType card_type() {
  return c10::is_privateuse1_backend_registered() ? torch::kPrivateUse1 : torch::kCUDA;
}

}  // namespace

int card_count() {
  if (card_type() != torch::kCUDA) return c10::impl::VirtualGuardImpl(card_type()).deviceCount();
  return torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
}

Result<torch::Device> open_device(int index, std::uint32_t threads) {
  pin_threads(threads);
  grow_segments(index < 0 || cards_map_memory());
  forbid_tf32();
  const int cards = card_count();
  if (index < 0 || cards == 0) return torch::Device(torch::kCPU);
  if (index >= cards) {
    return fail(ErrorCode::kInvalid, text("no CUDA device ", index, ": this machine has ", cards));
  }
  ::setenv(kWorkspaces, kOurWorkspaces, 0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Nothing here reads it, and each fill is a kernel.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  return torch::Device(card_type(), static_cast<c10::DeviceIndex>(index));
}

void wait_for(torch::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

void* current_stream(torch::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  if (stream.id() == 0) return nullptr;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
  return stream.native_handle();
#else  // the C interface of compiled models tells it
  const auto current = find_loaded<int(std::int32_t, void**)>("aoti_torch_get_current_cuda_stream");
  void* handle = nullptr;
  TORCH_CHECK(current != nullptr && current(device.index(), &handle) == 0,
              "the current stream is not known");
  return handle;
#endif
}

std::shared_ptr<void> pin(void* begin, std::uint64_t bytes, torch::Device device) {
  constexpr unsigned kForEveryContext = 1;  // cudaHostRegisterPortable
  const auto pin_pages = find_loaded<int(void*, std::size_t, unsigned)>("cudaHostRegister");
  const auto unpin_pages = find_loaded<int(void*)>("cudaHostUnregister");
  const auto forget_error = find_loaded<int()>("cudaGetLastError");
  if (!device.is_cuda() || !pin_pages || !unpin_pages || !forget_error) return nullptr;
  const c10::DeviceGuard guard(device);
  if (pin_pages(begin, bytes, kForEveryContext) != 0) {
    forget_error();  // which LibTorch would take for that of its next call
    static std::once_flag once;
    std::call_once(once, [] {
      log_warning(
          "the driver does not pin a snapshot's memory: snapshots stop the card for longer; raise "
          "the limit "
          "of "
          "locked memory (ulimit -l)");
    });
    return nullptr;
  }
  return {begin, [=](void* pages) {
            if (unpin_pages(pages) != 0) forget_error();
          }};
}

SnapshotDevice snapshot_device(torch::Device device) {
  return {.wait = [device] { wait_for(device); },
          .pin = [device](void* begin, std::uint64_t bytes) { return pin(begin, bytes, device); }};
}

// LibTorch's host allocator throws its general error, and TorchScript another
// one for everything that it runs. Only the text shows the cause.
bool is_out_of_memory(const std::exception& error) {
  const std::string_view words = error.what();
  const auto says = [words](std::string_view what) {
    return words.find(what) != std::string_view::npos;
  };
  // Of the host, a card, pinned memory and a launch.
  constexpr std::array kAllocators{"DefaultCPUAllocator: can't allocate memory",
                                   "CUDA out of memory",
                                   "CUDA error: out of memory",
                                   "CUDA driver error: out of memory",
                                   "CUDA_ERROR_OUT_OF_MEMORY",
                                   "_STATUS_ALLOC_FAILED"};
  // A library allocates its handle on the card; cuDNN names the memory that is
  // missing. When no memory is left, LibTorch asks NVML which processes hold
  // it, and fails if NVML does.
  constexpr std::array<std::array<std::string_view, 2>, 4> kInNoMemory{
      {{"CUBLAS_STATUS_NOT_INITIALIZED", "cublasCreate("},
       {"CUBLAS_STATUS_NOT_INITIALIZED", "cublasLtCreate("},
       {"CUDNN_STATUS_INTERNAL_ERROR", "ALLOC"},
       {"NVML_SUCCESS ==", "CUDACachingAllocator"}}};
  const auto says_both = [&](const auto& both) { return says(both[0]) && says(both[1]); };
  // oneDNN's, of a product that it has a way to compute and no room for.
  constexpr std::array kOneDnn{"could not create a primitive", "could not create a memory object",
                               "could not execute a primitive"};
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::any_of(kAllocators.begin(), kAllocators.end(), says) ||
         std::any_of(kInNoMemory.begin(), kInNoMemory.end(), says_both) ||
         std::find(kOneDnn.begin(), kOneDnn.end(), words) != kOneDnn.end();
}

Error error_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return fail(ErrorCode::kExhausted, "out of memory on the host");
  }
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string words =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  if (is_out_of_memory(error)) return fail(ErrorCode::kExhausted, words);
  if (const std::string_view fault = card_fault_in(words); !fault.empty()) {
    return fail(ErrorCode::kCard,
                text("the card failed: ", fault, "; look for Xid in the driver's log (dmesg)"));
  }
  return fail(ErrorCode::kInvalid, words);
}

std::string runtime_words() {
  const int cards = card_count();
  const std::string devices =
      cards == 0 ? "no CUDA device" : text(cards, " CUDA device", cards == 1 ? "" : "s");
  return text("LibTorch ", TORCH_VERSION, " ", cuda_words(), ", ", devices);
}

std::string device_name(torch::Device device) {
  if (device.is_cpu()) return "cpu";
  const std::string name = card_name(device.index());
  return name.empty() ? text("cuda:", static_cast<int>(device.index())) : name;
}

namespace {

std::string card_words(torch::Device device) {
  if (!device.is_cuda()) return "";
  const bool tf32 = at::globalContext().allowTF32CuBLAS() || at::globalContext().allowTF32CuDNN();
  return text(library_words(), tf32 ? " · TF32" : "", environment_words());
}

}  // namespace

std::string engine_fingerprint(torch::Device device, const std::string& kernels,
                               const TrainSpec& train) {
  const std::uint32_t rows = rows_at_a_time(train);
  const bool rounded = train.precision == "bf16" && device.is_cpu() && !cpu_multiplies_bf16();
  return text("torch ", TORCH_VERSION, " · ", device_name(device), card_words(device), " · ",
              at::get_cpu_capability(), " ", cpu_linear_name(), " · threads ", train.threads, " · ",
              train.precision, rounded ? " rounded" : "",
              train.state == StateForm::kLean ? " · lean" : "", kernels.empty() ? "" : " · ",
              kernels, rows < train.batch_size ? text(" · micro-batch ", rows) : "");
}

}  // namespace skerry::diffusion
