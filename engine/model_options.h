// SPDX-License-Identifier: Apache-2.0
// Options shared by several commands: the shape of a model, as a preset's name
// or numbers, and the form of the training state.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::engine {

struct ModelOptions {
  std::string preset;
  ModelSpec model;
  const CLI::App* command = nullptr;

  // RETURNS: whether the command line names a shape.
  bool given() const;
  // RETURNS: its preset, or its numbers: "128x4/4" is width, depth and patch
  // size.
  std::string name() const;
  // RETURNS: the model, with the shape of the preset if one is named.
  // ON FAILURE: kInvalid: there is no such preset.
  Result<ModelSpec> resolved() const;
};

// The captions of a model that no dataset stands behind.
struct CaptionOptions {
  std::string architecture = "dit";
  std::uint32_t dim = 4096;    // T5-XXL's
  std::uint32_t tokens = 300;  // PixArt-Sigma's
  // Sets them in `model` if the architecture reads captions.
  // ON FAILURE: kInvalid: there is no such architecture.
  Result<void> apply(ModelSpec& model) const;
};
// Adds --architecture, --caption-dim and --caption-tokens. LIFETIME: `options`
// outlives the parsing.
void add_caption_options(CLI::App& command, CaptionOptions& options);

// Adds --preset, --width, --depth, --heads and --patch-size. LIFETIME:
// `options` outlives the parsing.
void add_model_options(CLI::App& command, ModelOptions& options);

// Adds --state, for parse_state_form. LIFETIME: `state` outlives the
// parsing.
void add_state_option(CLI::App& command, std::string& state);
// Adds --kernels, for parse_kernel_choice. LIFETIME: `kernels`
// outlives the parsing.
void add_kernels_option(CLI::App& command, std::string& kernels);

}  // namespace skerry::engine
