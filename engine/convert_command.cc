// SPDX-License-Identifier: Apache-2.0
#include "engine/convert_command.h"

#include <cstdio>
#include <memory>

#include "base/text.h"
#include "diffusion/model/pretrained.h"
#include "engine/exit_code.h"

namespace skerry::engine {
namespace {

struct Arguments {
  std::string folder, output, objective = "auto";
  std::uint32_t caption_dim = 0;  // 0: as the weights are
};

Result<void> convert(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const InitObjective objective, parse_init_objective(arguments.objective));
  ASSIGN_OR_RETURN(const diffusion::Converted converted,
                   diffusion::convert_pretrained(arguments.folder, arguments.output, objective,
                                                 arguments.caption_dim));
  const ModelSpec& model = converted.model;
  std::printf("%s: %s, width %u, depth %u, heads %u, patch_size %u%s%s\n", arguments.output.c_str(),
              model.is_pixart() ? "PixArt" : "DiT", model.width, model.depth, model.heads,
              model.patch_size,
              converted.was_ddpm ? "; its time embedder is fitted to a flow's times" : "",
              converted.had_variance ? "; its learned variance is left out" : "");
  if (model.interpolation_scale != 1)
    std::printf("set interpolation_scale = %g in [model]\n", model.interpolation_scale);
  return {};
}

int run(const Arguments& arguments) {
  const Result<void> done = convert(arguments);
  if (done) return kExitOk;
  std::fprintf(stderr, "convert: %s\n", done.error().message.c_str());
  return exit_code_of(done.error().code);
}

}  // namespace

void register_convert_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "convert", "Turn public weights of a DiT or a PixArt into those that a run starts from");
  command
      ->add_option("folder", arguments->folder,
                   "Folder of diffusers' DiTTransformer2DModel, PixArtTransformer2DModel or the "
                   "older Transformer2DModel: F32, F16 or BF16, one file or shards")
      ->required();
  command->add_option("--out", arguments->output, "Folder to write, for [model] init")->required();
  command
      ->add_option("--objective", arguments->objective,
                   "What the weights predict: flow, epsilon (also the v of DDPM), or auto: as "
                   "scheduler_config.json in the folder or in ../scheduler says, else flow")
      ->capture_default_str();
  command
      ->add_option("--caption-dim", arguments->caption_dim,
                   "Make a PixArt of a DiT, for captions of so many numbers a token, as `skerry "
                   "dataset show` says; its labels go")
      ->type_name("N");
  command->footer(
      "Examples:\n  skerry-engine convert DiT-XL-2-256/transformer --out dit\n"
      "  skerry-engine convert sigma/transformer --out sigma-flow --objective epsilon");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace skerry::engine
