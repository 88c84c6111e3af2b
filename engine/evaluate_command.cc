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
  std::string router_of;  // ensemble folder, as the next
  std::string velocity;
  std::string output = "table";
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

int run_router(const Arguments& arguments, Json& json) {
  const auto measured = diffusion::measure_router(arguments.dataset, router_folder(arguments),
                                                  diffusion::usual_levels(), arguments.images);
  if (!measured.has_value()) return failed(measured.error());
  Json levels = Json::array();
  for (const auto& level : measured->levels) {
    levels.push_back({{"t", level.t}, {"accuracy", level.accuracy}, {"cross_entropy", level.cross_entropy}});
  }
  json["router"] = {{"images", measured->images},
                    {"mean_cross_entropy", measured->mean_cross_entropy()},
                    {"levels", levels}};
  if (arguments.output == "json") return kExitOk;
  std::printf("router, label-blind, on %llu test images\n     t  accuracy  cross-entropy\n",
              static_cast<unsigned long long>(measured->images));
  for (const auto& level : measured->levels) {
    std::printf("  %.2f     %.3f          %.3f\n", level.t, level.accuracy, level.cross_entropy);
  }
  std::printf("mean cross-entropy %.4f\n", measured->mean_cross_entropy());
  return kExitOk;
}

int run_velocity(const Arguments& arguments, Json& json) {
  const auto measured =
      diffusion::measure_velocity(arguments.velocity, arguments.dataset, arguments.images, arguments.device);
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
      "velocity error (mean square a pixel) on %llu test images; own = the expert of the image's partition\n"
      "     t   linear     full     top1      own\n",
      static_cast<unsigned long long>(measured->images));
  for (const auto& level : measured->levels) {
    std::printf("  %.2f   %.4f   %.4f   %.4f   %.4f\n", level.t, level.linear, level.full, level.top1,
                level.own);
  }
  std::printf(measured->below_linear() ? "the ensemble is below the linear predictor at every t\n"
                                       : "the ensemble is NOT below the linear predictor at every t\n");
  return kExitOk;
}

int run(const Arguments& arguments) {
  diffusion::set_algebra_threads(arguments.threads);
  Json json{{"api_version", 1}, {"dataset", arguments.dataset}};
  if (arguments.router || !arguments.router_of.empty() || arguments.velocity.empty()) {
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
  command->add_option("dataset", arguments->dataset, "Dataset folder, as ingest writes it")->required();
  command->add_flag("--router", arguments->router,
                    "Accuracy and cross-entropy of the analytic router by noise level (the default)");
  command->add_option(
      "--router-of", arguments->router_of,
      "Ensemble folder whose router is measured instead of the dataset's: that of a run from which "
      "experts were removed knows fewer partitions, and images of the others count as wrong");
  command->add_option("--velocity", arguments->velocity,
                      "Ensemble folder: its velocity error beside the best linear predictor's");
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
