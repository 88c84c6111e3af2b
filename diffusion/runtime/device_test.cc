// SPDX-License-Identifier: Apache-2.0
// What the exceptions of a card mean, and what a process sets before it
// computes. The words are those of LibTorch 2.11 with CUDA 13, cuBLAS 13 and
// cuDNN 9.
#include "diffusion/runtime/device.h"

#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/text.h"
#include "diffusion/kernels/product.h"
#include "diffusion/testing/pretended_card.h"
#if __has_include(<c10/core/AllocatorConfig.h>)
#include <c10/core/AllocatorConfig.h>
#endif

namespace skerry::diffusion {
namespace {

// As c10::cuda::c10_cuda_check_implementation writes it.
std::string cuda_words(const std::string& what) {
  return "CUDA error: " + what +
         "\nSearch for `cudaErrorUnknown' in https://docs.nvidia.com for more information.\nCUDA "
         "kernel "
         "errors "
         "might be asynchronously reported at some other API call, so the stacktrace below might "
         "be "
         "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n";
}

Error thrown(const std::string& words) {
  const Result<void> result = guarded([&]() -> Result<void> {
    throw c10::Error({__func__, __FILE__, __LINE__}, words);
  });
  return result.error();
}

TEST(CardFault, IsNoFaultOfTheInput) {
  for (const std::string& words :
       {cuda_words("an illegal memory access was encountered"),
        cuda_words("device-side assert triggered"), cuda_words("unspecified launch failure"),
        cuda_words("uncorrectable ECC error encountered"), cuda_words("unknown error"),
        cuda_words("CUDA-capable device(s) is/are busy or unavailable"),
        cuda_words("no kernel image is available for execution on the device"),
        std::string("CUDA driver error: invalid device ordinal"),
        std::string("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, "
                    "opa, opb)`"),
        std::string("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
                    "`cublasSetStream(handle, stream)`"),
        std::string("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        std::string("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        std::string("NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, "
                    "unhandled cuda error"),
        std::string(
            "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before"),
        std::string("kernel modulate_bf16: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS"),
        std::string(
            "Expected mha_graph.execute(handle, variant_pack, workspace_ptr.get()).is_good() to be "
            "true, but got false."),
        std::string("GET was unable to find an engine to execute this computation"),
        std::string("GPU has fallen off the bus")}) {
    EXPECT_EQ(thrown(words).code, ErrorCode::kCard) << words;
  }
  EXPECT_EQ(thrown("mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)").code,
            ErrorCode::kInvalid);
  EXPECT_EQ(thrown("PytorchStreamReader failed reading zip archive").code, ErrorCode::kInvalid);
}

TEST(CardFault, IsSaidInTheLineThatTellsOfIt) {
  EXPECT_EQ(
      thrown("The following operation failed in the TorchScript interpreter.\nRuntimeError: " +
             cuda_words("an illegal memory access was encountered"))
          .message,
      "the card failed: RuntimeError: CUDA error: an illegal memory access was encountered; look "
      "for Xid in "
      "the driver's log (dmesg)");
}

TEST(CardFault, IsNeitherMemoryNorThrownByTorchAlone) {
  const auto plain =
      guarded([]() -> Result<void> { throw std::runtime_error(cuda_words("unknown error")); });
  EXPECT_EQ(plain.error().code, ErrorCode::kCard);
  const auto host = guarded([]() -> Result<void> { throw std::bad_alloc(); });
  EXPECT_EQ(host.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(host.error().message, "out of memory on the host");
}

TEST(FullCard, IsOutOfMemoryWhoeverSaysIt) {
  for (
      const std::string& words :
      {cuda_words("out of memory"), std::string("CUDA driver error: out of memory"),
       std::string("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
       std::string(
           "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasGemmEx( handle, opa, opb)`"),
       std::string("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
       std::string(
           "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasLtCreate(handle)`"),
       std::string("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
       std::string("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
       std::string("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
       std::string(
           "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
       std::string("NVML_SUCCESS == r INTERNAL ASSERT FAILED at "
                   "\"/pytorch/c10/cuda/CUDACachingAllocator.cpp\":1165, please report a bug to "
                   "PyTorch. ")}) {
    EXPECT_TRUE(is_out_of_memory(std::runtime_error(words))) << words;
    EXPECT_EQ(thrown(words).code, ErrorCode::kExhausted) << words;
  }
}

class AllocatorSettings : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    ::unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    ::unsetenv("PYTORCH_ALLOC_CONF");
  }
  static std::string set() {
    const char* value = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
    return value == nullptr ? "" : value;
  }
};

TEST_F(AllocatorSettings, SegmentsGrowUnlessTheUserChose) {
  ::setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64", 1);
  ASSERT_TRUE(open_device(-1, 1));
  EXPECT_EQ(set(), "");
  clear();
  ::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", 1);
  ASSERT_TRUE(open_device(-1, 1));
  EXPECT_EQ(set(), "expandable_segments:False");
  clear();
  ASSERT_TRUE(open_device(-1, 1));
  EXPECT_EQ(set(), "expandable_segments:True");
#if __has_include(<c10/core/AllocatorConfig.h>)
  // LibTorch reads it once; nothing before this did.
  EXPECT_TRUE(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments());
#endif
}

// As an image of NVIDIA's does by its environment, before the engine opens its
// device.
TEST(Tf32, IsOffWhateverTheEnvironmentAsksFor) {
  at::globalContext().setFloat32MatmulPrecision("high");
  ASSERT_TRUE(at::globalContext().allowTF32CuBLAS());
  ASSERT_TRUE(open_device(-1, 1));
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
}

class Fingerprint : public ::testing::Test {
 protected:
  static std::string of(torch::Device device) {
    EXPECT_TRUE(open_device(-1, 1));
    return engine_fingerprint(device, "", {});
  }
  static bool names(const std::string& fingerprint, const std::string& words) {
    return fingerprint.find(words) != std::string::npos;
  }
};

TEST_F(Fingerprint, OfACardNamesItsLibrariesAndWhatTheEnvironmentTellsThem) {
  if (!at::detail::getCUDAHooks().hasCUDART()) GTEST_SKIP() << "this LibTorch is of no CUDA";
  const torch::Device card(torch::kCUDA, 0);
  const std::string plain = of(card);
  EXPECT_TRUE(names(plain, " · CUDA 1")) << plain;
  EXPECT_TRUE(names(plain, " · cuBLAS 1")) << plain;
  EXPECT_TRUE(names(plain, " · cuDNN ")) << plain;
  EXPECT_FALSE(names(plain, "TF32")) << plain;
  EXPECT_FALSE(names(plain, "CUBLAS_")) << plain;
  ::setenv("NVIDIA_TF32_OVERRIDE", "1", 1);
  ::setenv("TORCH_BLAS_PREFER_CUBLASLT", "1", 1);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  const std::string told = of(card);
  EXPECT_TRUE(names(
      told,
      " · NVIDIA_TF32_OVERRIDE=1 · TORCH_BLAS_PREFER_CUBLASLT=1 · CUBLAS_WORKSPACE_CONFIG=:16:8"))
      << told;
  const std::string cpu = of(torch::kCPU);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
  EXPECT_FALSE(names(of(card), "CUBLAS_WORKSPACE_CONFIG"));  // what the engine sets itself
  for (const char* name :
       {"NVIDIA_TF32_OVERRIDE", "TORCH_BLAS_PREFER_CUBLASLT", "CUBLAS_WORKSPACE_CONFIG"}) {
    ::unsetenv(name);
  }
  EXPECT_EQ(of(card), plain);
  EXPECT_EQ(of(torch::kCPU), cpu);
}

TEST_F(Fingerprint, OfTheCpuIsWhatItWas) {
  EXPECT_EQ(of(torch::kCPU), text("torch ", TORCH_VERSION, " · cpu · ", at::get_cpu_capability(),
                                  " ", cpu_linear_name(), " · threads 1 · fp32"));
}

using testing::PretendedCard;

TEST(Waiting, IsForTheDeviceThatIsNamed) {
  PretendedCard::forget();
  wait_for(PretendedCard::device(1));
  EXPECT_EQ(PretendedCard::counts().waits, (std::map<int, long>{{1, 1}}));
  wait_for(torch::kCPU);
}

TEST(CurrentStream, IsTheOneThatLibTorchQueuesOn) {
  const torch::Device card = PretendedCard::device();
  EXPECT_EQ(current_stream(card), nullptr);
  int other = 0;
  PretendedCard::set_stream(7, &other);
  EXPECT_EQ(current_stream(card), &other);
  PretendedCard::set_stream(0, nullptr);
}

}  // namespace
}  // namespace skerry::diffusion
