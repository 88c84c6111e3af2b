// SPDX-License-Identifier: Apache-2.0
#include "engine/train_command.h"

#include <cstdio>
#include <memory>

#include "base/log.h"
#include "engine/exit_code.h"
#include "engine/model_options.h"
#include "engine/train_channel.h"
#include "engine/train_standalone.h"

namespace skerry::engine {
namespace {

struct Arguments {
  int channel = -1;
  bool standalone = false;
  ModelOptions shape;
  std::string architecture = "auto";
  std::string schedule = "constant";
  std::string t_distribution = "uniform";
  std::string kernels = "fast";
  std::string state = "full";
  StandaloneOptions options;
};

Result<void> run_standalone(Arguments& arguments) {
  StandaloneOptions& options = arguments.options;
  if (options.dataset.empty() || options.output.empty()) {
    return fail(ErrorCode::kInvalid, "--standalone needs --dataset DIR and --out FILE");
  }
  ASSIGN_OR_RETURN(options.model, arguments.shape.resolved());
  ASSIGN_OR_RETURN(options.architecture, parse_architecture(arguments.architecture));
  ASSIGN_OR_RETURN(options.train.schedule, parse_schedule(arguments.schedule));
  ASSIGN_OR_RETURN(options.train.t_distribution, parse_time_distribution(arguments.t_distribution));
  ASSIGN_OR_RETURN(options.train.kernels, parse_kernel_choice(arguments.kernels));
  ASSIGN_OR_RETURN(options.train.state, parse_state_form(arguments.state));
  return train_standalone(options);
}

int run(Arguments& arguments) {
  if (arguments.channel >= 0) return train_channel(arguments.channel);
  if (!arguments.standalone) {
    std::fprintf(stderr, "train: expected --standalone, or --channel FD from a daemon\n");
    return exit_code_of(ErrorCode::kInvalid);
  }
  const Result<void> done = run_standalone(arguments);
  if (done) return kExitOk;
  std::fprintf(stderr, "train: %s\n", done.error().message.c_str());
  return exit_code_of(done.error().code);
}

void add_training_options(CLI::App& command, Arguments& arguments) {
  TrainSpec& train = arguments.options.train;
  command.add_option("--seed", train.seed, "The run's seed")->capture_default_str();
  command.add_option("--attempt", train.attempt, "Raised after a diverged attempt")
      ->capture_default_str();
  command.add_option("--steps", train.steps, "Optimiser steps in all")->capture_default_str();
  command.add_option("--batch-size", train.batch_size, "Samples a step")->capture_default_str();
  command.add_option("--micro-batch", train.micro_batch, "Samples at a time; 0: the whole batch")
      ->capture_default_str();
  command.add_flag("--gradient-checkpointing", train.gradient_checkpointing,
                   "Less memory for more time; the same bits");
  add_state_option(command, arguments.state);
  command.add_option("--learning-rate", train.learning_rate, "AdamW's rate")->capture_default_str();
  command.add_option("--schedule", arguments.schedule, "constant, linear, cosine or cyclic")
      ->capture_default_str();
  command.add_option("--cycle-steps", train.cycle_steps,
                     "Steps of one cycle of the cyclic schedule");
  command.add_option("--t-distribution", arguments.t_distribution, "uniform or lognormal")
      ->capture_default_str();
  command.add_flag("--flip", train.flip,
                   "Mirror half of the images left to right; of latents the columns, which an "
                   "autoencoder decodes to "
                   "about the mirrored image");
  command.add_flag("--weight-norm", train.weight_norm,
                   "Hold the rows of attention and MLP at the root mean square of the lengths they "
                   "are drawn with");
  command.add_option("--warmup-steps", train.warmup_steps, "Linear warm-up")->capture_default_str();
  command.add_option("--clip", train.clip, "Limit of the gradient norm, 0 for none")
      ->capture_default_str();
  command.add_option("--ema", train.ema, "Decay of the mean of weights")->capture_default_str();
  command.add_option("--label-dropout", train.label_dropout, "Share of labels hidden")
      ->capture_default_str();
  command.add_option("--weight-decay", train.weight_decay, "AdamW's weight decay")
      ->capture_default_str();
  add_kernels_option(command, arguments.kernels);
  command.add_option("--precision", train.precision, "fp32, or bf16 for the matrix products")
      ->capture_default_str();
  command.add_option("--threads", train.threads, "CPU threads, part of what makes bits equal")
      ->capture_default_str();
  command.add_option("--device", train.device, "CUDA device where there is one; -1: the CPU")
      ->capture_default_str();
  command
      .add_option("--cards", train.cards,
                  "Devices from that one on, or threads of the CPU, that share each batch")
      ->capture_default_str();
}

}  // namespace

void register_train_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  StandaloneOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("train", "Train one expert, or the router");
  auto* channel = command->add_option("--channel", arguments->channel,
                                      "Descriptor of the socket to the daemon");
  command->add_flag("--standalone", arguments->standalone, "Train here, without a daemon")
      ->excludes(channel);
  command->add_option("--dataset", options.dataset, "Dataset folder, from `skerry-engine ingest`");
  auto* expert = command->add_option("--expert", options.train.expert, "Which partition to learn")
                     ->capture_default_str();
  auto* router =
      command
          ->add_flag("--router", options.router,
                     "Learn to tell the partitions of all images apart, at every noise level")
          ->excludes(expert);
  command->add_option("--out", options.output, "Checkpoint to write (safetensors)");
  command->add_option("--resume", options.resume, "Checkpoint to go on from");
  command
      ->add_option("--init", options.init,
                   "Folder of an exported expert of this shape to start from")
      ->excludes(router);
  command->add_option("--events", options.events,
                      "Folder for TensorBoard: loss, gradient norm and learning rate");
  auto* profile = command->add_option(
      "--profile", options.profile,
      "File for a trace of a few steps, by phase and operator, for ui.perfetto.dev");
  command->add_option("--profile-after", options.profile_after, "Steps before them")
      ->needs(profile)
      ->capture_default_str();
  command->add_option("--profile-steps", options.profile_steps, "How many")
      ->needs(profile)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--stop-after", options.stop_after, "Leave at this step");
  add_model_options(*command, arguments->shape);
  command
      ->add_option("--architecture", arguments->architecture,
                   "dit, pixart (which reads captions), or auto: pixart if the dataset has text")
      ->capture_default_str();
  add_training_options(*command, *arguments);
  command->get_option("--weight-norm")->excludes("--init");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
