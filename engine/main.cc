// SPDX-License-Identifier: Apache-2.0
// skerry-engine: the one program that holds LibTorch. Images to shards, shards
// to weights, weights to images.
#include <CLI/CLI.hpp>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/runtime/runtime.h"
#include "engine/bench_command.h"
#include "engine/check_command.h"
#include "engine/convert_command.h"
#include "engine/evaluate_command.h"
#include "engine/exit_code.h"
#include "engine/ingest_command.h"
#include "engine/plan_command.h"
#include "engine/sample_command.h"
#include "engine/train_command.h"

int main(int argc, char** argv) {
  using namespace skerry;
  init_log("skerry-engine");
  CLI::App app("Trains diffusion experts and samples from their ensemble.");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] {
    return text("skerry-engine ", SKERRY_VERSION, " (", diffusion::runtime_words(), ")");
  });
  app.footer("Installed from a package it also has: skerry-engine setup, which installs LibTorch.");
  int exit_code = 0;
  engine::register_ingest_command(app, exit_code);
  engine::register_train_command(app, exit_code);
  engine::register_sample_command(app, exit_code);
  engine::register_evaluate_command(app, exit_code);
  engine::register_plan_command(app, exit_code);
  engine::register_bench_command(app, exit_code);
  engine::register_check_command(app, exit_code);
  engine::register_convert_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? engine::kExitOk : engine::exit_code_of(ErrorCode::kInvalid);
  }
  return exit_code;
}
