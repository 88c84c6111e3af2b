// The engine's training step for tests/bench/train_rival.py to be measured against: for every number of steps read from
// standard input it prints the processor seconds that they took, in which its neighbours on the machine do not count; for
// "memory", the bytes that tensors held at most during one more step beside weights, moments and mean.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/temp_folder.h"
#include "diffusion/memory_meter.h"
#include "diffusion/test_shard.h"
#include "diffusion/train.h"

namespace {

using namespace skerry;
using namespace skerry::diffusion;

constexpr std::uint32_t kSamples = 256;

template <class T>
T must(Result<T> result) {
  if (result) {
    if constexpr (std::is_void_v<T>)
      return;
    else
      return std::move(*result);
  }
  std::fprintf(stderr, "train_bench: %s\n", result.error().message.c_str());
  std::exit(1);
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times training steps.");
  ModelSpec model;
  TrainSpec train;
  train.device = -1;
  train.clip = 1;
  app.add_option("--image-size", model.image_size)->required();
  app.add_option("--channels", model.channels)->required();
  app.add_option("--patch-size", model.patch_size)->required();
  app.add_option("--width", model.width)->required();
  app.add_option("--depth", model.depth)->required();
  app.add_option("--heads", model.heads)->required();
  app.add_option("--classes", model.classes)->required();
  app.add_option("--batch-size", train.batch_size)->required();
  app.add_option("--precision", train.precision)->required();
  app.add_flag("--gradient-checkpointing", train.gradient_checkpointing);
  std::string kernels;
  app.add_option("--kernels", kernels)->required();
  CLI11_PARSE(app, argc, argv);
  train.kernels = must(parse_kernels(kernels));
  train.steps = 1'000'000;
  const TempFolder folder;
  must(testing::write_test_shard(folder / "shard", model, kSamples));
  Trainer trainer = must(Trainer::create(model, train, {folder / "shard"}));
  must(trainer.step());  // first calls choose kernels and take memory
  std::printf("%s\n", trainer.fingerprint().c_str());
  std::fflush(stdout);
  for (std::string asked; std::cin >> asked;) {
    if (asked == "memory") {
      const MemoryMeter meter;
      must(trainer.step());
      std::printf("%llu\n", static_cast<unsigned long long>(meter.peak_bytes()));
    } else {
      const std::uint64_t steps = std::stoull(asked);
      const double begin = processor_seconds();
      for (std::uint64_t i = 0; i < steps; ++i) must(trainer.step());
      std::printf("%.6f\n", processor_seconds() - begin);
    }
    std::fflush(stdout);
  }
}
