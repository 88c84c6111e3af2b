// SPDX-License-Identifier: Apache-2.0
#include "engine/check_command.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/temp_folder.h"
#include "base/text.h"
#include "diffusion/data/test_shard.h"
#include "diffusion/train/train.h"
#include "engine/exit_code.h"

namespace skerry::engine {
namespace {

constexpr std::uint32_t kSamples = 8;

// A description of the device that took the step.
Result<std::string> take_step(int device) {
  const ModelSpec model{
      .image_size = 8, .patch_size = 4, .width = 32, .depth = 1, .heads = 2, .classes = 2};
  const TrainSpec train{.steps = 1, .batch_size = kSamples, .threads = 1, .device = device};
  const TempFolder folder;
  TRY(diffusion::testing::write_test_shard(folder / "shard", model, kSamples));
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(diffusion::Trainer trainer,
                   diffusion::Trainer::create(model, train, {folder / "shard"}));
  if (device >= 0 && trainer.device_name() == "cpu") {
    return fail(ErrorCode::kNotFound, text("LibTorch finds no CUDA device ", device));
  }
  ASSIGN_OR_RETURN(const diffusion::StepMetrics step, trainer.step());
  if (!std::isfinite(step.loss)) return fail(ErrorCode::kCorrupt, "the step's loss is not finite");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return text(trainer.device_name(), ": one training step, ", static_cast<int>(took.count() * 1e3),
              " ms");
}

int run(int device) {
  const Result<std::string> took = take_step(device);
  // A daemon reads the first line, well or not.
  std::printf("%s\n", took ? took->c_str() : took.error().message.c_str());
  return took ? kExitOk : exit_code_of(took.error().code);
}

}  // namespace

void register_check_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "check", "Take one small training step: whether this engine can train here");
  auto device = std::make_shared<int>(0);
  command->add_option("--device", *device, "CUDA device; -1: the CPU")->capture_default_str();
  command->footer(
      "Example:\n  skerry-engine check\n  CUDA_VISIBLE_DEVICES=GPU-8932f937 skerry-engine check\n"
      "Prints the device and the time, or why it cannot train; exit status 0 if the step was "
      "taken.");
  command->callback([device, &exit_code] { exit_code = run(*device); });
}

}  // namespace skerry::engine
