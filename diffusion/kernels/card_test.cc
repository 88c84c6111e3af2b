// SPDX-License-Identifier: Apache-2.0
#include "diffusion/kernels/card.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "diffusion/kernels/kernels.h"
#include "diffusion/testing/emulated_card.h"

namespace skerry::diffusion {
namespace {

using emulated::EmulatedCard;

// Two blocks' worth of warps, and a width that fills neither its last warp nor
// its last column.
constexpr std::int64_t kWidth = 268;

TEST(CardKernels, ComputeWhatLibTorchComputes) {
  const auto kernels = cuda_kernels(std::make_shared<EmulatedCard>());
  const auto checked = check_against_reference(*kernels, torch::kCPU, kWidth);
  EXPECT_TRUE(checked) << checked.error().message;
  EXPECT_TRUE(check_against_reference(*kernels, torch::kCPU, 4));
}

// As a card would whose compiler or driver is broken.
class BrokenCard : public EmulatedCard {
 public:
  explicit BrokenCard(std::string kernel) : kernel_(std::move(kernel)) {}
  void launch(const std::string& kernel, Grid grid, void* stream, void** arguments) override {
    int width = *static_cast<int*>(arguments[1]) - (kernel == kernel_ ? 4 : 0);
    arguments[1] = &width;
    EmulatedCard::launch(kernel, grid, stream, arguments);
  }

 private:
  std::string kernel_;
};

TEST(CardKernels, AnyOneThatIsWrongIsFound) {
  const EmulatedCard whole;
  for (const auto& [kernel, body] : whole.kernels()) {
    const auto broken = cuda_kernels(std::make_shared<BrokenCard>(kernel));
    EXPECT_FALSE(check_against_reference(*broken, torch::kCPU, kWidth)) << kernel;
  }
}

// What comes out of one product is taken where it lies, and of a row of
// parameters only part.
TEST(CardKernels, TakePartsOfAWiderRow) {
  const auto kernels = cuda_kernels(std::make_shared<EmulatedCard>());
  at::manual_seed(2);
  const at::Tensor x = at::randn({3, 5, 64}), y = at::randn({3, 5, 64});
  const auto parts = at::randn({3, 6 * 64}).unsqueeze(1).chunk(6, 2);
  const at::Tensor expected = x + y * parts[2];
  EXPECT_TRUE(at::allclose(kernels->add_gated(x, y, parts[2]), expected));
  const auto both = kernels->add_gated_and_modulate(x, y, parts[2], parts[3], parts[4]);
  EXPECT_TRUE(at::allclose(both.first, expected));
  const at::Tensor normal = at::layer_norm(expected, {64}, {}, {}, 1e-6);
  EXPECT_TRUE(at::allclose(both.second, normal * (1 + parts[4]) + parts[3], 1e-4, 1e-5));
  // Rows that lie unlike each other.
  const auto mixed =
      kernels->add_gated_and_modulate(x, y, parts[2], parts[3], parts[4].contiguous());
  EXPECT_TRUE(at::equal(mixed.second, both.second));
}

// More parts than a grid has rows for, of samples with very many tokens.
TEST(CardKernels, AGatedSumGoesThroughMoreThanItHasThreads) {
  EmulatedCard card;
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 9, 64}), y = at::randn({2, 9, 64}),
                   gate = at::randn({2, 1, 64}), out = at::full_like(x, NAN);
  int tokens = 9, width = 64;
  long long stride = 64;
  void *from = x.data_ptr(), *part = y.data_ptr(), *gates = gate.data_ptr(), *to = out.data_ptr();
  void* arguments[] = {&tokens, &width, &stride, &from, &part, &gates, &to};
  card.launch("add_gated_float", {2, 2, 32}, /*stream=*/nullptr, arguments);
  EXPECT_TRUE(at::allclose(out, x + y * gate));
}

// Of this LibTorch; nullptr: it brings none.
void* open_nvrtc() {
  namespace fs = std::filesystem;
  void* library = nullptr;
  for (const char* folder : {SKERRY_TORCH_FOLDER "/lib", SKERRY_TORCH_FOLDER "/../nvidia/cu13/lib",
                             SKERRY_TORCH_FOLDER "/../nvidia/cuda_nvrtc/lib"}) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& file : fs::directory_iterator(folder)) {
      const std::string name = file.path().filename();
      const bool is_it = name.starts_with("libnvrtc") &&
                         name.find("builtins") == std::string::npos &&
                         name.find(".alt") == std::string::npos;
      if (is_it && library == nullptr)
        library = ::dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    }
  }
  return library;
}

TEST(CardKernels, CompileForEachGenerationOfCards) {
  void* const library = open_nvrtc();
  if (library == nullptr) GTEST_SKIP() << "this LibTorch brings no NVRTC";
  const EmulatedCard emulated;
  for (const char* architecture :
       {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    const auto code = compile_kernels(library, architecture);
    ASSERT_TRUE(code) << code.error().message;
    EXPECT_TRUE(
        code->starts_with("\x7F"
                          "ELF"));
    for (const auto& [kernel, body] : emulated.kernels()) {
      EXPECT_NE(code->find(".text." + kernel), std::string::npos)
          << kernel << " for " << architecture;
    }
  }
  const auto unknown = compile_kernels(library, "sm_1");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("sm_1"), std::string::npos) << unknown.error().message;
}

TEST(CardKernels, ACardNewerThanNvrtcHasThePtxOfTheNewestThatItKnows) {
  void* const library = open_nvrtc();
  if (library == nullptr) GTEST_SKIP() << "this LibTorch brings no NVRTC";
  EXPECT_EQ(architecture_for(library, 90).value(), "sm_90");
  const std::string architecture = architecture_for(library, 990).value();
  ASSERT_TRUE(architecture.starts_with("compute_")) << architecture;
  const auto code = compile_kernels(library, architecture);
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_NE(code->find(".target sm_" + architecture.substr(8)), std::string::npos);
  const EmulatedCard emulated;
  for (const auto& [kernel, body] : emulated.kernels()) {
    EXPECT_NE(code->find(".entry " + kernel), std::string::npos) << kernel;
  }
  const auto old = architecture_for(library, 30);
  ASSERT_FALSE(old);
  EXPECT_NE(old.error().message.find("found 3.0"), std::string::npos) << old.error().message;
}

// The backward pass may come when nothing else holds the card any more.
TEST(CardKernels, AGraphHoldsItsCard) {
  const at::Tensor y = at::ones({1, 2, 8}).set_requires_grad(true);
  const at::Tensor out = cuda_kernels(std::make_shared<EmulatedCard>())
                             ->add_gated(at::zeros({1, 2, 8}), y, at::full({1, 1, 8}, 2.0F));
  EXPECT_TRUE(at::equal(torch::autograd::grad({out}, {y}, {at::ones_like(out)})[0],
                        at::full({1, 2, 8}, 2.0F)));
}

}  // namespace
}  // namespace skerry::diffusion
