// SPDX-License-Identifier: Apache-2.0
// Measures the engine's training step, for comparison with
// tests/bench/train_rival.py. Reads commands from standard input:
//   - N: processor seconds of N steps, which exclude other programs' time.
//   - "memory": the peak bytes of tensors during one more step, beside weights,
//     moments and mean.
//   - "wall N": seconds on the clock that N steps take.
//   - "data N": seconds to draw N batches.
//   - "snapshot": seconds to write a snapshot into the same memory again, as at
//     a round's end.
//   - "bytes": the snapshot's size.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/temp_folder.h"
#include "base/unique_fd.h"
#include "diffusion/data/test_shard.h"
#include "diffusion/runtime/memory_meter.h"
#include "diffusion/train/train.h"
#include "diffusion/train/train_batch.h"
#include "tests/bench/measure.h"

namespace {

using namespace skerry;
using namespace skerry::bench;
using namespace skerry::diffusion;

constexpr std::uint32_t kSamples = 256;

std::uint64_t asked_steps() {
  std::uint64_t steps = 0;
  std::cin >> steps;
  return steps;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times training steps.");
  ModelSpec model;
  TrainSpec train;
  train.clip = 1;
  app.add_option("--image-size", model.image_size)->required();
  app.add_option("--channels", model.channels)->required();
  app.add_option("--patch-size", model.patch_size)->required();
  app.add_option("--width", model.width)->required();
  app.add_option("--depth", model.depth)->required();
  app.add_option("--heads", model.heads)->required();
  app.add_option("--classes", model.classes)->required();
  app.add_option("--caption-dim", model.caption_dim);
  app.add_option("--caption-tokens", model.caption_tokens);
  app.add_option("--batch-size", train.batch_size)->required();
  app.add_option("--precision", train.precision)->required();
  app.add_flag("--gradient-checkpointing", train.gradient_checkpointing);
  train.device = -1;
  app.add_option("--device", train.device);
  std::string kernels;
  app.add_option("--kernels", kernels)->required();
  std::string state = "full";
  app.add_option("--state", state);
  CLI11_PARSE(app, argc, argv);
  train.kernels = must(parse_kernel_choice(kernels));
  train.state = must(parse_state_form(state));
  train.steps = 1'000'000;
  const TempFolder folder;
  must(testing::write_test_shard(folder / "shard", model, kSamples));
  std::vector<std::string> files{folder / "shard"};
  if (model.is_pixart()) {
    files.push_back(folder / "captions");
    must(testing::write_test_captions(files.back(), model));
  }
  Trainer trainer = must(Trainer::create(model, train, files));
  must(trainer.step());  // first calls choose kernels and take memory
  std::printf("%s\n", trainer.fingerprint().c_str());
  std::fflush(stdout);
  const auto train_for = [&](std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) must(trainer.step());
  };
  const TrainingSet set = must(TrainingSet::open(files, model, {}));
  SampleOrder order(train, set.size());
  const UniqueFd memory(::memfd_create("snapshot", MFD_CLOEXEC));
  for (std::string asked; std::cin >> asked;) {
    if (asked == "wall") {
      std::printf("%.6f\n", seconds_of([&, steps = asked_steps()] { train_for(steps); }));
    } else if (asked == "data") {
      std::printf("%.6f\n", seconds_of([&, steps = asked_steps()] {
                    for (std::uint64_t i = 0; i < steps; ++i) {
                      make_batch(set, order, model, train, i, 0, train.batch_size);
                    }
                  }));
    } else if (asked == "snapshot") {
      std::printf("%.6f\n", seconds_of([&] { must(trainer.write_snapshot(memory.get())); }));
    } else if (asked == "bytes") {
      std::printf("%llu\n", static_cast<unsigned long long>(trainer.snapshot_bytes()));
    } else if (asked == "memory") {
      const MemoryMeter meter;
      must(trainer.step());
      std::printf("%llu\n", static_cast<unsigned long long>(meter.peak_bytes()));
    } else {
      const std::uint64_t steps = std::stoull(asked);
      const double begin = processor_seconds();
      train_for(steps);
      std::printf("%.6f\n", processor_seconds() - begin);
    }
    std::fflush(stdout);
  }
}
