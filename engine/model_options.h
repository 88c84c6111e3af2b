// SPDX-License-Identifier: Apache-2.0
// What several commands take: the shape of a model, as a preset's name or its
// numbers, and the form of a training's state.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "diffusion/model/spec.h"

namespace skerry::engine {

struct ModelOptions {
  std::string preset;
  diffusion::ModelSpec model;
  const CLI::App* command = nullptr;

  // Whether the command line names a shape.
  bool given() const;
  // Its preset, or its numbers: "128x4/4" is width, depth and patch size.
  std::string name() const;
  // The model, its shape taken from the preset where one is named. kInvalid:
  // there is no such preset.
  Result<diffusion::ModelSpec> resolved() const;
};

// Adds --preset, --width, --depth, --heads and --patch-size. `options` must
// outlive the parsing.
void add_model_options(CLI::App& command, ModelOptions& options);

// Adds --state, for diffusion::parse_state_form. `state` must outlive the
// parsing.
void add_state_option(CLI::App& command, std::string& state);
// Adds --kernels, for diffusion::parse_kernel_choice. `kernels` must outlive
// the parsing.
void add_kernels_option(CLI::App& command, std::string& kernels);

}  // namespace skerry::engine
