// SPDX-License-Identifier: Apache-2.0
// skerry-fuzz: libFuzzer on the target that FUZZ_TARGET names, with its planted
// bug turned on where FUZZ_PLANTED is set. At the end it prints how many inputs
// were accepted: a
// fuzzer whose inputs are all refused at the door tests nothing behind it.
// Messages are changed half of the time by fields.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/fuzz/field_mutator.h"
#include "tests/fuzz/targets.h"
#include "tests/planted/planted.h"

// libFuzzer's own changes.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

const skerry::fuzz::Target* target = nullptr;
std::uint64_t accepted = 0;

void print_accepted() {
  std::fprintf(stderr, "stat::accepted: %llu\n", static_cast<unsigned long long>(accepted));
}

std::string mutate_bytes(std::string bytes) {
  constexpr std::size_t kGrowth = 64;
  const std::size_t size = bytes.size();
  bytes.resize(size + kGrowth);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
  return bytes;
}

// Empty where the input has no message, or the changed one does not fit.
std::string changed_by_fields(std::string_view input, std::size_t most, std::minstd_rand& random) {
  using skerry::fuzz::Holds;
  const std::size_t start = target->holds == Holds::kMessageAfterByte ? 1 : 0;
  if (target->holds == Holds::kNoMessage || input.size() <= start) return {};
  const std::string message =
      skerry::fuzz::mutate_fields(input.substr(start), random, mutate_bytes);
  if (message.empty() || start + message.size() > most) return {};
  return std::string(input.substr(0, start)) + message;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("FUZZ_TARGET");
  target = skerry::fuzz::find_target(name == nullptr ? "" : name);
  if (target == nullptr) {
    std::fputs("FUZZ_TARGET must name one of:", stderr);
    for (const auto& known : skerry::fuzz::targets())
      std::fprintf(stderr, " %s", known.name.data());
    std::fputs("\n", stderr);
    std::exit(2);
  }
  if (std::getenv("FUZZ_PLANTED") != nullptr) skerry::plant(target->planted);
  google::protobuf::SetLogHandler(
      nullptr);  // a line for each text that is no UTF-8 would take most of the time
  std::atexit(print_accepted);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (target->run(input) == skerry::fuzz::Verdict::kAccepted) ++accepted;
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 2 == 0) {
    const std::string changed =
        changed_by_fields({reinterpret_cast<const char*>(data), size}, most, random);
    if (!changed.empty()) {
      std::copy(changed.begin(), changed.end(), data);
      return changed.size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}
