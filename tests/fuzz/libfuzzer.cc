// skerry-fuzz: libFuzzer on the target that FUZZ_TARGET names, with its planted bug turned on where FUZZ_PLANTED is set. At
// the end it prints how many inputs were accepted: a
// fuzzer whose inputs are all refused at the door tests nothing behind it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/planted.h"
#include "tests/fuzz/targets.h"

namespace {

const skerry::fuzz::Target* target = nullptr;
std::uint64_t accepted = 0;

void print_accepted() {
  std::fprintf(stderr, "stat::accepted: %llu\n", static_cast<unsigned long long>(accepted));
}

void plant(std::string_view name) {
  for (std::size_t i = 0; i < std::size(skerry::kPlantedBugs); ++i) {
    if (skerry::kPlantedBugs[i].name == name) skerry::planted_bug = i;
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("FUZZ_TARGET");
  target = skerry::fuzz::find_target(name == nullptr ? "" : name);
  if (target == nullptr) {
    std::fputs("FUZZ_TARGET must name one of:", stderr);
    for (const auto& known : skerry::fuzz::targets()) std::fprintf(stderr, " %s", known.name.data());
    std::fputs("\n", stderr);
    std::exit(2);
  }
  if (std::getenv("FUZZ_PLANTED") != nullptr) plant(target->planted);
  std::atexit(print_accepted);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (target->run(input) == skerry::fuzz::Verdict::kAccepted) ++accepted;
  return 0;
}
