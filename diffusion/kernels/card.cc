// SPDX-License-Identifier: Apache-2.0
#include "diffusion/kernels/card.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

// The few functions of NVRTC and of the driver that this file needs, declared
// from their documented C interfaces. Their headers come only with a CUDA
// toolkit. Both return 0 for success.
using Program = struct ProgramTag*;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;

template <class Signature>
Result<Signature*> find(void* library, const char* name) {
  if (void* const symbol = ::dlsym(library, name)) return reinterpret_cast<Signature*>(symbol);
  return fail(ErrorCode::kUnavailable, text("the CUDA libraries have no ", name));
}

constexpr const char* kPtx = "compute_";
constexpr int kComputeMajor = 75, kComputeMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…

class CudaCard : public Card {
 public:
  static Result<std::unique_ptr<Card>> open(int index) {
    // LibTorch's own way to NVRTC and the driver; it knows where its package
    // keeps them.
    void* const library = ::dlopen("libcaffe2_nvrtc.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(ErrorCode::kUnavailable, ::dlerror());
    auto card = std::make_unique<CudaCard>();
    TRY(card->find_driver(library));
    int device = 0, major = 0, minor = 0;
    TRY(card->expect(card->device_get_(&device, index), "cuDeviceGet"));
    TRY(card->expect(card->attribute_(&major, kComputeMajor, device), "cuDeviceGetAttribute"));
    TRY(card->expect(card->attribute_(&minor, kComputeMinor, device), "cuDeviceGetAttribute"));
    TRY(card->expect(card->retain_(&card->context_, device), "cuDevicePrimaryCtxRetain"));
    ASSIGN_OR_RETURN(const std::string architecture, architecture_for(library, 10 * major + minor));
    ASSIGN_OR_RETURN(const std::string code, compile_kernels(library, architecture));
    if (architecture.starts_with(kPtx)) {
      int driver = 0;
      TRY(card->expect(card->driver_version_(&driver), "cuDriverGetVersion"));
      card->translator_ = text(architecture, " by driver ", driver / 1000, ".", driver % 1000 / 10);
    }
    TRY(card->enter());
    TRY(card->expect(card->load_(&card->module_, code.data()), "cuModuleLoadData"));
    return std::unique_ptr<Card>(std::move(card));
  }

  std::string translator() const override { return translator_; }

  void launch(const std::string& kernel, Grid grid, void* stream, void** arguments) override {
    const Result<void> launched = [&]() -> Result<void> {
      TRY(enter());
      ASSIGN_OR_RETURN(const Function function, function_of(kernel));
      return expect(launch_(function, grid.columns, grid.rows, 1, grid.threads, 1, 1, /*shared=*/0,
                            static_cast<Stream>(stream), arguments, /*extra=*/nullptr),
                    "cuLaunchKernel");
    }();
    TORCH_CHECK(launched.has_value(), "kernel ", kernel, ": ", launched.error().message);
  }

 private:
  Result<void> find_driver(void* library) {
    ASSIGN_OR_RETURN(error_name_, find<int(int, const char**)>(library, "cuGetErrorName"));
    ASSIGN_OR_RETURN(driver_version_, find<int(int*)>(library, "cuDriverGetVersion"));
    ASSIGN_OR_RETURN(device_get_, find<int(int*, int)>(library, "cuDeviceGet"));
    ASSIGN_OR_RETURN(attribute_, find<int(int*, int, int)>(library, "cuDeviceGetAttribute"));
    ASSIGN_OR_RETURN(retain_, find<int(Context*, int)>(library, "cuDevicePrimaryCtxRetain"));
    ASSIGN_OR_RETURN(set_current_, find<int(Context)>(library, "cuCtxSetCurrent"));
    ASSIGN_OR_RETURN(get_current_, find<int(Context*)>(library, "cuCtxGetCurrent"));
    ASSIGN_OR_RETURN(load_, find<int(Module*, const void*)>(library, "cuModuleLoadData"));
    ASSIGN_OR_RETURN(function_,
                     find<int(Function*, Module, const char*)>(library, "cuModuleGetFunction"));
    ASSIGN_OR_RETURN(launch_, find<LaunchKernel>(library, "cuLaunchKernel"));
    return {};
  }

  // The context that LibTorch computes in, on a thread that may not have met
  // CUDA yet.
  Result<void> enter() {
    Context current = nullptr;
    TRY(expect(get_current_(&current), "cuCtxGetCurrent"));
    return current == context_ ? Result<void>{} : expect(set_current_(context_), "cuCtxSetCurrent");
  }

  Result<Function> function_of(const std::string& kernel) {
    const std::scoped_lock lock(mutex_);
    const auto known = functions_.find(kernel);
    if (known != functions_.end()) return known->second;
    Function function = nullptr;
    TRY(expect(function_(&function, module_, kernel.c_str()), "cuModuleGetFunction"));
    return functions_[kernel] = function;
  }

  Result<void> expect(int status, const char* call) const {
    if (status == 0) return {};
    const char* name = nullptr;
    error_name_(status, &name);
    return fail(ErrorCode::kUnavailable,
                text(call, ": ", name == nullptr ? text("error ", status) : std::string(name)));
  }

  using LaunchKernel = int(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, Stream, void**, void**);
  int (*error_name_)(int, const char**) = nullptr;
  int (*driver_version_)(int*) = nullptr;
  int (*device_get_)(int*, int) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
  int (*retain_)(Context*, int) = nullptr;
  int (*set_current_)(Context) = nullptr;
  int (*get_current_)(Context*) = nullptr;
  int (*load_)(Module*, const void*) = nullptr;
  int (*function_)(Function*, Module, const char*) = nullptr;
  LaunchKernel* launch_ = nullptr;

  Context context_ = nullptr;
  std::string translator_;
  Module module_ = nullptr;  // goes with the process, as the libraries do
  std::mutex mutex_;
  std::map<std::string, Function> functions_;
};

// In growing order; empty: it does not say.
std::vector<int> architectures_of(void* library) {
  const auto count_of = find<int(int*)>(library, "nvrtcGetNumSupportedArchs");
  const auto list = find<int(int*)>(library, "nvrtcGetSupportedArchs");
  int count = 0;
  if (!count_of || !list || (*count_of)(&count) != 0 || count <= 0) return {};
  std::vector<int> known(static_cast<std::size_t>(count));
  if ((*list)(known.data()) != 0) return {};
  std::ranges::sort(known);
  return known;
}

}  // namespace

Result<std::string> architecture_for(void* library, int capability) {
  const std::vector<int> known = architectures_of(library);
  const auto above = std::ranges::upper_bound(known, capability);
  if (known.empty()) return text("sm_", capability);
  if (above == known.begin()) {
    return fail(ErrorCode::kUnavailable,
                text("expected a card of compute capability ", known.front() / 10, ".",
                     known.front() % 10, " or newer, as this LibTorch's NVRTC compiles for, found ",
                     capability / 10, ".", capability % 10, "; use a LibTorch of an older CUDA"));
  }
  const int newest = *std::prev(above);
  return text(newest == capability ? "sm_" : kPtx, newest);
}

Result<std::string> compile_kernels(void* library, const std::string& architecture) {
  using Text = int(Program, char*);
  using Size = int(Program, std::size_t*);
  ASSIGN_OR_RETURN(
      const auto create,
      (find<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
          library, "nvrtcCreateProgram")));
  ASSIGN_OR_RETURN(const auto compile,
                   (find<int(Program, int, const char* const*)>(library, "nvrtcCompileProgram")));
  ASSIGN_OR_RETURN(const auto destroy, find<int(Program*)>(library, "nvrtcDestroyProgram"));
  ASSIGN_OR_RETURN(const auto words_of, find<const char*(int)>(library, "nvrtcGetErrorString"));
  ASSIGN_OR_RETURN(const auto log_size, find<Size>(library, "nvrtcGetProgramLogSize"));
  ASSIGN_OR_RETURN(const auto log, find<Text>(library, "nvrtcGetProgramLog"));
  const bool ptx = architecture.starts_with(kPtx);
  ASSIGN_OR_RETURN(const auto code_size,
                   find<Size>(library, ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize"));
  ASSIGN_OR_RETURN(const auto code, find<Text>(library, ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN"));

  const auto read = [](Size* size_of, Text* text_of, Program program) {
    std::size_t size = 0;
    std::string bytes;
    if (size_of(program, &size) == 0) bytes.resize(size);
    if (size == 0 || text_of(program, bytes.data()) != 0) bytes.clear();
    return bytes;
  };
  Program program = nullptr;
  int status = create(&program, kCardKernels, "card_kernels.cu", 0, nullptr, nullptr);
  std::string compiled, complaint;
  if (status == 0) {
    const std::string option = "--gpu-architecture=" + architecture;
    const char* const options[] = {option.c_str(), "--std=c++17"};
    status = compile(program, 2, options);
    if (status == 0) {
      compiled = read(code_size, code, program);
    } else {
      complaint = read(log_size, log, program);
    }
    destroy(&program);
  }
  if (!compiled.empty()) return compiled;
  return fail(ErrorCode::kUnavailable,
              text("the kernels do not compile for ", architecture, ": ", words_of(status),
                   complaint.empty() ? "" : ": ", complaint));
}

Result<std::unique_ptr<Card>> open_card(int index) { return CudaCard::open(index); }

}  // namespace skerry::diffusion
