// SPDX-License-Identifier: Apache-2.0
#include "engine/model_options.h"

#include "base/text.h"

namespace skerry::engine {

bool ModelOptions::given() const {
  if (!preset.empty()) return true;
  for (const char* name : {"--width", "--depth", "--heads", "--patch-size"}) {
    if (command->get_option(name)->count() > 0) return true;
  }
  return false;
}

std::string ModelOptions::name() const {
  return preset.empty() ? text(model.width, "x", model.depth, "/", model.patch_size) : preset;
}

Result<ModelSpec> ModelOptions::resolved() const {
  if (preset.empty()) return model;
  ASSIGN_OR_RETURN(ModelSpec named, model_preset(preset));
  named.image_size = model.image_size;
  named.channels = model.channels;
  named.classes = model.classes;
  return named;
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  options.command = &command;
  command.add_option("--preset", options.preset,
                     "Shape by name: S, B, L or XL with patch size 2, 4 or 8, as S/2");
  command.add_option("--width", options.model.width, "Width of the model")->capture_default_str();
  command.add_option("--depth", options.model.depth, "Blocks")->capture_default_str();
  command.add_option("--heads", options.model.heads, "Attention heads")->capture_default_str();
  command.add_option("--patch-size", options.model.patch_size, "Side of a patch in pixels")
      ->capture_default_str();
}

Result<void> CaptionOptions::apply(ModelSpec& model) const {
  ASSIGN_OR_RETURN(const Architecture chosen, parse_architecture(architecture));
  if (chosen != Architecture::kPixart) return {};
  model.caption_dim = dim;
  model.caption_tokens = tokens;
  return {};
}

void add_caption_options(CLI::App& command, CaptionOptions& options) {
  command.add_option("--architecture", options.architecture, "dit or pixart, which reads captions")
      ->check(CLI::IsMember({"dit", "pixart"}))
      ->capture_default_str();
  command.add_option("--caption-dim", options.dim, "Numbers of a caption's token: 4096 of T5-XXL")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--caption-tokens", options.tokens, "Tokens of a caption")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_state_option(CLI::App& command, std::string& state) {
  command
      .add_option(
          "--state", state,
          "full, or lean: moments and mean of weights in bf16, 10 bytes a parameter instead of 16")
      ->capture_default_str();
}

void add_kernels_option(CLI::App& command, std::string& kernels) {
  command
      .add_option("--kernels", kernels, "fast, or reference: what PyTorch computes, bit for bit")
      ->capture_default_str();
}

}  // namespace skerry::engine
