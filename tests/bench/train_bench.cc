// The engine's training step for tests/bench/train_rival.py to be measured against: trains on noise, and for every number
// of steps read from standard input prints the processor seconds that they took. Its neighbours on the machine do not count.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/random.h"
#include "base/temp_folder.h"
#include "diffusion/train.h"
#include "storage/safetensors.h"

namespace {

using namespace skerry;
using namespace skerry::diffusion;

constexpr std::uint32_t kSamples = 256;

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
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

std::string write_shard(const std::string& path, const ModelSpec& model) {
  Stream stream({.seed = 1, .purpose = Purpose::kSimulation});
  std::string images(kSamples * model.pixels(), '\0');
  for (char& pixel : images) pixel = static_cast<char>(stream.below(256));
  std::string labels(kSamples * sizeof(std::int32_t), '\0');  // all of class 0
  const auto written =
      storage::write_safetensors(path,
                                 {{"images",
                                   storage::DType::kU8,
                                   {kSamples, model.channels, model.image_size, model.image_size},
                                   images},
                                  {"labels", storage::DType::kI32, {kSamples}, labels}},
                                 {});
  if (written) return path;
  std::fprintf(stderr, "train_bench: %s\n", written.error().message.c_str());
  std::exit(1);
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
  std::string kernels;
  app.add_option("--kernels", kernels)->required();
  CLI11_PARSE(app, argc, argv);
  train.kernels = must(parse_kernels(kernels));
  train.steps = 1'000'000;
  const TempFolder folder;
  Trainer trainer = must(Trainer::create(model, train, {write_shard(folder / "shard", model)}));
  must(trainer.step());  // first calls choose kernels and take memory
  std::printf("%s\n", trainer.fingerprint().c_str());
  std::fflush(stdout);
  for (std::uint64_t steps = 0; std::cin >> steps;) {
    const double begin = processor_seconds();
    for (std::uint64_t i = 0; i < steps; ++i) must(trainer.step());
    std::printf("%.6f\n", processor_seconds() - begin);
    std::fflush(stdout);
  }
}
