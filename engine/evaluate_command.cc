// SPDX-License-Identifier: Apache-2.0
#include "engine/evaluate_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "diffusion/data/algebra.h"
#include "diffusion/router/measure.h"
#include "diffusion/router/velocity.h"
#include "engine/exit_code.h"

namespace skerry::engine {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string dataset;
  bool router = false;
  std::string learned;    // weights of a learned router
  std::string router_of;  // ensemble folder, as the next
  std::string velocity;
  std::string output = "table";
  std::string precision = "fp32";
  std::uint64_t images = 3000;
  int threads = 1;
  int device = 0;
};

int failed(const Error& error) {
  std::fprintf(stderr, "evaluate: %s\n", error.message.c_str());
  return exit_code_of(error.code);
}

std::string router_folder(const Arguments& arguments) {
  return arguments.router_of.empty() ? arguments.dataset : arguments.router_of + "/router";
}

Json router_json(const diffusion::RouterMeasurement& measured) {
  Json levels = Json::array();
  for (const auto& level : measured.levels) {
    levels.push_back(
        {{"t", level.t}, {"accuracy", level.accuracy}, {"cross_entropy", level.cross_entropy}});
  }
  return {{"images", measured.images},
          {"mean_cross_entropy", measured.mean_cross_entropy()},
          {"microseconds_per_image", measured.microseconds},
          {"levels", levels}};
}

void print_router(const char* name, const diffusion::RouterMeasurement& measured) {
  std::printf("%s router, label-blind, on %llu test images\n     t  accuracy  cross-entropy\n",
              name, static_cast<unsigned long long>(measured.images));
  for (const auto& level : measured.levels) {
    std::printf("  %.2f     %.3f          %.3f\n", level.t, level.accuracy, level.cross_entropy);
  }
  std::printf("mean cross-entropy %.4f, %.0f µs an image\n", measured.mean_cross_entropy(),
              measured.microseconds);
}

int run_router(const Arguments& arguments, Json& json) {
  const bool prints = arguments.output != "json";
  const std::vector<double> levels = diffusion::usual_levels();
  const auto analytic = diffusion::measure_router(arguments.dataset, router_folder(arguments),
                                                  levels, arguments.images);
  if (!analytic.has_value()) return failed(analytic.error());
  json["router"] = router_json(*analytic);
  if (prints) print_router("analytic", *analytic);
  if (arguments.learned.empty()) return kExitOk;
  const auto learned = diffusion::measure_learned_router(
      arguments.dataset, arguments.learned, levels, arguments.images, arguments.device);
  if (!learned.has_value()) return failed(learned.error());
  json["learned_router"] = router_json(*learned);
  if (prints) print_router("learned", *learned);
  return kExitOk;
}

int run_velocity(const Arguments& arguments, Json& json) {
  const auto measured =
      diffusion::measure_velocity(arguments.velocity, arguments.dataset, arguments.images,
                                  arguments.device, arguments.precision);
  if (!measured.has_value()) return failed(measured.error());
  Json levels = Json::array();
  for (const auto& level : measured->levels) {
    levels.push_back({{"t", level.t},
                      {"linear", level.linear},
                      {"full", level.full},
                      {"top1", level.top1},
                      {"own", level.own}});
  }
  json["velocity"] = {
      {"images", measured->images}, {"below_linear", measured->below_linear()}, {"levels", levels}};
  if (arguments.output == "json") return kExitOk;
  std::printf(
      "velocity error (mean square a pixel) on %llu test images; own = the expert of the image's "
      "partition\n"
      "     t   linear     full     top1      own\n",
      static_cast<unsigned long long>(measured->images));
  for (const auto& level : measured->levels) {
    std::printf("  %.2f   %.4f   %.4f   %.4f   %.4f\n", level.t, level.linear, level.full,
                level.top1, level.own);
  }
  std::printf(measured->below_linear()
                  ? "the ensemble is below the linear predictor at every t\n"
                  : "the ensemble is NOT below the linear predictor at every t\n");
  return kExitOk;
}

int run(const Arguments& arguments) {
  diffusion::set_algebra_threads(arguments.threads);
  Json json{{"api_version", 1}, {"dataset", arguments.dataset}};
  const bool names_router = !arguments.learned.empty() || !arguments.router_of.empty();
  if (arguments.router || names_router || arguments.velocity.empty()) {
    if (const int code = run_router(arguments, json); code != kExitOk) return code;
  }
  if (!arguments.velocity.empty()) {
    if (const int code = run_velocity(arguments, json); code != kExitOk) return code;
  }
  if (arguments.output == "json") {
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  }
  return kExitOk;
}

}  // namespace

void register_evaluate_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure on the held-back test half of a dataset folder");
  command->add_option("dataset", arguments->dataset, "Dataset folder, as ingest writes it")
      ->required();
  command->add_flag(
      "--router", arguments->router,
      "Accuracy and cross-entropy of the analytic router by noise level (the default)");
  command->add_option(
      "--learned", arguments->learned,
      "Weights of a learned router to compare with it: a checkpoint of `train --router`, or "
      "router/learned.safetensors of an ensemble");
  command->add_option(
      "--router-of", arguments->router_of,
      "Ensemble folder whose router is measured instead of the dataset's: that of a run from which "
      "experts were removed knows fewer partitions, and images of the others count as wrong");
  command->add_option("--velocity", arguments->velocity,
                      "Ensemble folder: its velocity error beside the best linear predictor's");
  command
      ->add_option("--precision", arguments->precision,
                   "fp32, or bf16 for the experts' matrix products, of --velocity")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->add_option("-o,--output", arguments->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  command->add_option("--images", arguments->images, "At most so many test images")
      ->check(CLI::Range(1U, 1000000U));
  command->add_option("--threads", arguments->threads, "Threads of matrix products")
      ->check(CLI::Range(1, 256));
  command->add_option("--device", arguments->device, "CUDA device where there is one; -1: the CPU");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
