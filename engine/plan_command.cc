// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_command.h"

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/exit_code.h"
#include "engine/model_options.h"
#include "model/memory_plan.h"

namespace skerry::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::uint64_t, 7> kCardsGb{8, 12, 16, 24, 48, 80, 141};

struct Arguments {
  ModelOptions shape;
  CaptionOptions captions;
  TrainSpec train;
  std::string kernels = "fast";
  std::string state = "full";
  std::string output = "table";
  Arguments() {
    shape.model.image_size =
        32;  // the latents of a picture of 256 pixels, as the presets' papers train on
    shape.model.channels = 4;
    shape.model.classes = 1000;
    train.precision = "bf16";
  }
};

struct Row {
  std::string name;
  bool checkpointing = false;
  MemoryPlan plan;
};

Result<void> add_rows(const std::string& name, const ModelSpec& model, TrainSpec train,
                      std::vector<Row>& rows) {
  TRY(validate(model));
  for (const bool checkpointing : {false, true}) {
    train.gradient_checkpointing = checkpointing;
    rows.push_back({name, checkpointing, plan_memory(model, train)});
  }
  return {};
}

// Every preset where no shape is asked for.
Result<std::vector<Row>> plan(const Arguments& arguments) {
  TrainSpec train = arguments.train;
  ASSIGN_OR_RETURN(train.kernels, parse_kernel_choice(arguments.kernels));
  ASSIGN_OR_RETURN(train.state, parse_state_form(arguments.state));
  TRY(validate(train));
  std::vector<Row> rows;
  if (arguments.shape.given()) {
    ASSIGN_OR_RETURN(ModelSpec model, arguments.shape.resolved());
    TRY(arguments.captions.apply(model));
    TRY(add_rows(arguments.shape.name(), model, train, rows));
    return rows;
  }
  for (const char* preset : {"S/2", "B/2", "L/2", "XL/2"}) {
    ModelOptions shape = arguments.shape;
    shape.preset = preset;
    ASSIGN_OR_RETURN(ModelSpec model, shape.resolved());
    TRY(arguments.captions.apply(model));
    TRY(add_rows(preset, model, train, rows));
  }
  return rows;
}

void print_json(const Arguments& arguments, const std::vector<Row>& rows) {
  Json models = Json::array();
  for (const Row& row : rows) {
    Json cards = Json::array();
    for (const std::uint64_t gb : kCardsGb) {
      cards.push_back({{"gb", gb}, {"micro_batch", rows_that_fit(row.plan, gb * 1'000'000'000)}});
    }
    models.push_back({{"model", row.name},
                      {"gradient_checkpointing", row.checkpointing},
                      {"parameters", row.plan.parameters},
                      {"checkpoint_bytes", row.plan.checkpoint_bytes},
                      {"state_bytes", row.plan.state_bytes},
                      {"sample_bytes", row.plan.sample_bytes},
                      {"cards", std::move(cards)}});
  }
  const Json out{{"api_version", 1},
                 {"precision", arguments.train.precision},
                 {"architecture", arguments.captions.architecture},
                 {"kernels", arguments.kernels},
                 {"state", arguments.state},
                 {"image_size", arguments.shape.model.image_size},
                 {"channels", arguments.shape.model.channels},
                 {"models", std::move(models)}};
  std::printf("%s\n", out.dump(2).c_str());
}

void print_table(const Arguments& arguments, const std::vector<Row>& rows) {
  std::printf(
      "The most samples at a time ([train] micro_batch), computed, by the card's memory in GB; -: "
      "does not "
      "fit\n"
      "images of %ux%u with %u channels, %s, %s kernels, %s state\n\n%-10s %-13s %10s %10s %9s "
      "%9s ",
      arguments.shape.model.image_size, arguments.shape.model.image_size,
      arguments.shape.model.channels, arguments.train.precision.c_str(), arguments.kernels.c_str(),
      arguments.state.c_str(), "MODEL", "CHECKPOINTING", "PARAMETERS", "CHECKPOINT", "STATE",
      "SAMPLE");
  for (const std::uint64_t gb : kCardsGb)
    std::printf(" %5llu", static_cast<unsigned long long>(gb));
  std::printf("\n");
  for (const Row& row : rows) {
    std::printf("%-10s %-13s %9.1fM %7.2f GB %6.2f GB %6.1f MB ", row.name.c_str(),
                row.checkpointing ? "yes" : "no", static_cast<double>(row.plan.parameters) / 1e6,
                static_cast<double>(row.plan.checkpoint_bytes) / 1e9,
                static_cast<double>(row.plan.state_bytes) / 1e9,
                static_cast<double>(row.plan.sample_bytes) / 1e6);
    for (const std::uint64_t gb : kCardsGb) {
      const std::uint64_t fit = rows_that_fit(row.plan, gb * 1'000'000'000);
      std::printf(" %5s", fit == 0 ? "-" : text(fit).c_str());
    }
    std::printf("\n");
  }
}

int run(const Arguments& arguments) {
  const auto rows = plan(arguments);
  if (!rows) {
    std::fprintf(stderr, "plan: %s\n", rows.error().message.c_str());
    return exit_code_of(rows.error().code);
  }
  if (arguments.output == "json") {
    print_json(arguments, *rows);
  } else {
    print_table(arguments, *rows);
  }
  return kExitOk;
}

}  // namespace

void register_plan_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  ModelSpec& model = arguments->shape.model;
  CLI::App* command = app.add_subcommand(
      "plan", "Compute which model fits which card: every preset, or the shape given");
  add_model_options(*command, arguments->shape);
  command
      ->add_option("--image-size", model.image_size,
                   "Side of what is trained on, in pixels or latents")
      ->capture_default_str();
  command->add_option("--channels", model.channels, "Its channels")->capture_default_str();
  command->add_option("--classes", model.classes, "Labels")->capture_default_str();
  add_caption_options(*command, arguments->captions);
  command->add_option("--precision", arguments->train.precision, "fp32 or bf16")
      ->capture_default_str();
  add_kernels_option(*command, arguments->kernels);
  add_state_option(*command, arguments->state);
  command->add_option("-o,--output", arguments->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
