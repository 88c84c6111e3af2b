// SPDX-License-Identifier: Apache-2.0
// Runs each kernel of card_kernels.cu once under ThreadSanitizer, each thread
// of a block apart. A barrier that is missing shows as a data race, and ends
// the program with ThreadSanitizer's status. Does not link LibTorch.
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "diffusion/testing/emulated_card.h"

namespace skerry::diffusion {
namespace {

// Of two warps; a width that fills neither the last warp nor the last column.
// Two blocks share a sample.
constexpr int kSamples = 1, kTokens = 3, kTogether = 2, kWidth = 268;
constexpr unsigned kThreads = 64;
constexpr std::uint32_t kOnes = 0x3F803F80;  // near 1 as a float, and two ones as bf16

// What a kernel is given: "T" tokens, "W" width, "G" rows together, "R" rows of
// all samples, "S" stride, "*" an array of its own.
struct Call {
  const char* kernel;
  const char* arguments;
  Card::Grid grid;
};

constexpr Card::Grid kEachRow{kSamples * kTokens, 1, kThreads};
constexpr Card::Grid kEachPart{kSamples, 2, kThreads};
constexpr Card::Grid kColumnsOfRows{3, 2, kThreads};
constexpr Call kCalls[] = {
    {"modulate", "TWS*****", kEachRow},
    {"modulate_backward", "TWGS******", kEachPart},
    {"gated_modulate", "TWS********", kEachRow},
    {"gated_modulate_backward", "TWGS**********", kEachPart},
    {"add_gated", "TWS****", kEachPart},
    {"add_gated_backward", "TWGS*****", kEachPart},
    {"bias_gelu", "RWG***", kColumnsOfRows},
    {"bias_gelu_backward", "RWG*****", kColumnsOfRows},
};

class Arguments {
 public:
  explicit Arguments(const std::string& kinds) {
    for (const char kind : kinds) {
      switch (kind) {
        case 'T':
          number(kTokens);
          break;
        case 'W':
          number(kWidth);
          break;
        case 'G':
          number(kTogether);
          break;
        case 'R':
          wide_number(kSamples * kTokens);
          break;
        case 'S':
          wide_number(kWidth);
          break;
        default:
          array();
          break;
      }
    }
  }
  void** pointers() { return pointers_.data(); }

 private:
  void number(int value) { pointers_.push_back(&numbers_.emplace_back(value)); }
  void wide_number(long long value) { pointers_.push_back(&wide_numbers_.emplace_back(value)); }
  // As large as the largest array of any kernel.
  void array() {
    auto& memory = memory_.emplace_back(std::size_t{kSamples} * kTokens * 3 * kWidth, kOnes);
    pointers_.push_back(&arrays_.emplace_back(memory.data()));
  }

  std::deque<int> numbers_;
  std::deque<long long> wide_numbers_;
  std::deque<std::vector<std::uint32_t>> memory_;
  std::deque<void*> arrays_;
  std::vector<void*> pointers_;
};

int run_all() {
  emulated::EmulatedCard card;
  std::size_t ran = 0;
  for (const Call& call : kCalls) {
    for (const char* const type : {"_float", "_bf16"}) {
      Arguments arguments(call.arguments);
      card.launch(std::string(call.kernel) + type, call.grid, /*stream=*/nullptr,
                  arguments.pointers());
      ++ran;
    }
  }
  std::printf("%zu of %zu kernels ran\n", ran, card.kernels().size());
  return ran == card.kernels().size() ? 0 : 1;
}

}  // namespace
}  // namespace skerry::diffusion

int main() { return skerry::diffusion::run_all(); }
