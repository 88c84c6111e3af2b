// SPDX-License-Identifier: Apache-2.0
#include "engine/bench_command.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "base/temp_folder.h"
#include "base/text.h"
#include "diffusion/data/test_shard.h"
#include "diffusion/runtime/memory_meter.h"
#include "diffusion/runtime/speed.h"
#include "diffusion/train/train.h"
#include "engine/exit_code.h"
#include "engine/model_options.h"
#include "model/memory_plan.h"
#include "model/operations.h"

namespace skerry::engine {
namespace {

using diffusion::kPhases;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t kSamples = 256;

struct Arguments {
  ModelOptions shape;
  CaptionOptions captions;
  TrainSpec train;
  std::vector<std::string> precisions{"fp32"};
  std::vector<std::uint32_t> batch_sizes{64};
  std::string kernels = "fast";
  std::string state = "full";
  std::uint32_t warmup = 3;
  std::uint32_t steps = 20;
  std::string output = "table";
  Arguments() {
    shape.model.image_size = 32;
    shape.model.channels = 4;
    shape.model.classes = 1000;
    train.clip = 1;
  }
};

struct Row {
  std::string model, precision, device, fingerprint;
  std::uint32_t batch_size = 0;
  std::uint64_t parameters = 0;
  double step_seconds = 0;
  double flops = 0;  // a second
  std::optional<double> peak;
  std::uint64_t memory_bytes = 0;
  double watched_seconds = 0;  // of a step whose phases were timed, which on a card makes it slower
  std::array<double, kPhases.size()> phase_seconds{};
  bool fits = true;

  double images_per_second() const { return batch_size / step_seconds; }
};

// Seconds of one of so many steps.
Result<double> time_steps(diffusion::Trainer& trainer, std::uint32_t steps) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0; i < steps; ++i) TRY(trainer.advance());
  TRY(trainer.settle());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / steps;
}

Result<void> measure(const ModelSpec& model, const TrainSpec& train, const Arguments& arguments,
                     Row& row) {
  const TempFolder folder;
  TRY(validate(model));
  TRY(diffusion::testing::write_test_shard(folder / "shard", model, kSamples));
  std::vector<std::string> files{folder / "shard"};
  if (model.is_pixart()) {
    files.push_back(folder / "captions");
    TRY(diffusion::testing::write_test_captions(files.back(), model));
  }
  ASSIGN_OR_RETURN(diffusion::Trainer trainer, diffusion::Trainer::create(model, train, files));
  row.device = trainer.device_name();
  row.parameters = trainer.parameter_count();
  const bool on_card = row.device != "cpu";
  TRY(time_steps(trainer, arguments.warmup));
  ASSIGN_OR_RETURN(row.step_seconds, time_steps(trainer, arguments.steps));
  row.flops = 3 * forward_flops(model) * row.images_per_second();
  {
    const diffusion::PhaseClock clock([&] { trainer.wait(); });
    ASSIGN_OR_RETURN(row.watched_seconds, time_steps(trainer, arguments.steps));
    row.phase_seconds = clock.seconds();
    for (double& seconds : row.phase_seconds) seconds /= arguments.steps;
  }
  const diffusion::MemoryMeter meter(on_card);
  TRY(trainer.step());
  row.memory_bytes = meter.peak_bytes() + plan_memory(model, train).checkpoint_bytes;
  row.fingerprint = trainer.fingerprint();
  return {};
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream items(list);
  for (std::string name; std::getline(items, name, ',');) names.push_back(name);
  if (names.empty()) names.emplace_back();
  return names;
}

// What the device could do at most: published for a card, measured for the CPU,
// once for each precision.
Result<std::optional<double>> peak_of(const std::string& device, const TrainSpec& train,
                                      std::map<std::string, double>& measured) {
  if (device != "cpu") return published_peak(device, train.precision);
  if (!measured.contains(train.precision)) {
    ASSIGN_OR_RETURN(measured[train.precision], diffusion::measure_cpu_product(train));
  }
  return std::optional(measured[train.precision]);
}

Result<std::vector<Row>> bench(const Arguments& arguments) {
  std::vector<Row> rows;
  std::map<std::string, double> measured;
  TrainSpec train = arguments.train;
  ASSIGN_OR_RETURN(train.kernels, parse_kernel_choice(arguments.kernels));
  ASSIGN_OR_RETURN(train.state, parse_state_form(arguments.state));
  for (const std::string& preset : names_in(arguments.shape.preset)) {
    ModelOptions shape = arguments.shape;
    shape.preset = preset;
    ASSIGN_OR_RETURN(ModelSpec model, shape.resolved());
    TRY(arguments.captions.apply(model));
    for (const std::string& precision : arguments.precisions) {
      for (const std::uint32_t batch_size : arguments.batch_sizes) {
        train.precision = precision;
        train.batch_size = batch_size;
        Row row{.model = shape.name(), .precision = precision, .batch_size = batch_size};
        std::fprintf(stderr, "%s %s batch %u ...\n", row.model.c_str(), precision.c_str(),
                     batch_size);
        if (const Result<void> done = measure(model, train, arguments, row); !done) {
          if (done.error().code != ErrorCode::kExhausted) return done.error();
          row.fits = false;
        } else {
          ASSIGN_OR_RETURN(row.peak, peak_of(row.device, train, measured));
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

double sum_of(const std::array<double, kPhases.size()>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

Json json_of(const Row& row) {
  Json out{{"model", row.model},
           {"precision", row.precision},
           {"batch_size", row.batch_size},
           {"fits", row.fits}};
  if (!row.fits) return out;
  Json phases = Json::object();
  for (std::size_t i = 0; i < kPhases.size(); ++i) phases[kPhases[i]] = row.phase_seconds[i];
  phases["other"] = row.watched_seconds - sum_of(row.phase_seconds);
  out["device"] = row.device;
  out["fingerprint"] = row.fingerprint;
  out["parameters"] = row.parameters;
  out["step_seconds"] = row.step_seconds;
  out["images_per_second"] = row.images_per_second();
  out["flops_per_second"] = row.flops;
  out["peak_flops_per_second"] = row.peak ? Json(*row.peak) : Json(nullptr);
  out["share_of_peak"] = row.peak ? Json(row.flops / *row.peak) : Json(nullptr);
  out["memory_bytes"] = row.memory_bytes;
  out["watched_step_seconds"] = row.watched_seconds;
  out["phase_seconds"] = std::move(phases);
  return out;
}

void print_json(const Arguments& arguments, const std::vector<Row>& rows) {
  Json items = Json::array();
  for (const Row& row : rows) items.push_back(json_of(row));
  const Json out{{"api_version", 1},
                 {"image_size", arguments.shape.model.image_size},
                 {"channels", arguments.shape.model.channels},
                 {"architecture", arguments.captions.architecture},
                 {"kernels", arguments.kernels},
                 {"threads", arguments.train.threads},
                 {"gradient_checkpointing", arguments.train.gradient_checkpointing},
                 {"state", arguments.state},
                 {"steps", arguments.steps},
                 {"items", std::move(items)}};
  std::printf("%s\n", out.dump(2).c_str());
}

void print_table(const std::vector<Row>& rows) {
  std::printf("%-10s %-9s %5s %9s %8s %7s %9s %9s ", "MODEL", "PRECISION", "BATCH", "IMAGES/S",
              "TFLOP/S", "OF PEAK", "MEMORY", "STEP");
  for (const char* phase : kPhases) std::printf(" %9s", phase);
  std::printf("\n");
  for (const Row& row : rows) {
    std::printf("%-10s %-9s %5u ", row.model.c_str(), row.precision.c_str(), row.batch_size);
    if (!row.fits) {
      std::printf("%9s\n", "out of memory");
      continue;
    }
    const std::string share =
        row.peak ? text(static_cast<int>(100 * row.flops / *row.peak + 0.5), " %") : "-";
    std::printf("%9.1f %8.3f %7s %6.2f GB %6.1f ms ", row.images_per_second(), row.flops / 1e12,
                share.c_str(), static_cast<double>(row.memory_bytes) / 1e9, row.step_seconds * 1e3);
    for (const double seconds : row.phase_seconds) {
      std::printf(" %7.1f %%", 100 * seconds / row.watched_seconds);
    }
    std::printf("\n");
  }
  if (!rows.empty() && rows.front().device == "cpu") {
    std::printf("the peak is that of a plain matrix product of 1024 by 1024, measured here\n");
  }
}

int run(const Arguments& arguments) {
  const auto rows = bench(arguments);
  if (!rows) {
    std::fprintf(stderr, "bench: %s\n", rows.error().message.c_str());
    return exit_code_of(rows.error().code);
  }
  if (arguments.output == "json") {
    print_json(arguments, *rows);
  } else {
    print_table(*rows);
  }
  return kExitOk;
}

void add_recipe_options(CLI::App& command, Arguments& arguments) {
  TrainSpec& train = arguments.train;
  command.add_option("--precision", arguments.precisions, "fp32, bf16, or both: fp32,bf16")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--batch-size", arguments.batch_sizes, "Samples a step; several: 32,64,128")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--micro-batch", train.micro_batch, "Samples at a time; 0: the whole batch")
      ->capture_default_str();
  command.add_flag("--gradient-checkpointing", train.gradient_checkpointing,
                   "Less memory for more time");
  add_state_option(command, arguments.state);
  add_kernels_option(command, arguments.kernels);
  command.add_option("--threads", train.threads, "CPU threads")->capture_default_str();
  command.add_option("--device", train.device, "CUDA device where there is one; -1: the CPU")
      ->capture_default_str();
  command
      .add_option("--steps", arguments.steps, "Steps that are timed, and as many again by phase")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--warmup", arguments.warmup, "Steps before them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace

void register_bench_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  ModelSpec& model = arguments->shape.model;
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure training steps: speed, share of the peak, memory, and the time of each phase");
  add_model_options(*command, arguments->shape);
  command->get_option("--preset")->description("Shape by name, or several: S/2,B/2");
  command
      ->add_option("--image-size", model.image_size,
                   "Side of what is trained on, in pixels or latents")
      ->capture_default_str();
  command->add_option("--channels", model.channels, "Its channels")->capture_default_str();
  command->add_option("--classes", model.classes, "Labels")->capture_default_str();
  add_caption_options(*command, arguments->captions);
  add_recipe_options(*command, *arguments);
  command->add_option("-o,--output", arguments->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
