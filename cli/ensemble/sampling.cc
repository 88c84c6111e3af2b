// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/sampling.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/text.h"
#include "cli/shell/printable.h"

namespace skerry::cli {

void add_sampling_options(CLI::App& command, Sampling& sampling) {
  command.add_option("-n,--count", sampling.count, "how many images")
      ->check(CLI::Range(1U, 100000U))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--steps", sampling.steps, "steps of the solver")
      ->check(CLI::Range(1U, 10000U))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--solver", sampling.solver,
                  "euler; heun (twice the work of a step, far smaller error); adams (the work of "
                  "euler, an error like heun's; for the routes ancestral and full)")
      ->check(CLI::IsMember({"euler", "heun", "adams"}))
      ->capture_default_str()
      ->type_name("NAME");
  command.add_option("--guidance", sampling.guidance, "guidance scale; 1: none")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->type_name("SCALE");
  command
      .add_option("--route", sampling.route,
                  "ancestral (one expert an image), or mixing top1, top2, full")
      ->check(CLI::IsMember({"ancestral", "top1", "top2", "full"}))
      ->capture_default_str()
      ->type_name("NAME");
  command
      .add_option("--router", sampling.router,
                  "who is asked by top1, top2 and full: analytic or learned; without it, what the "
                  "run trained")
      ->check(CLI::IsMember({"analytic", "learned"}))
      ->type_name("NAME");
  command
      .add_option("--vae", sampling.vae,
                  "what decodes latents into images, where those were trained on: the folder of "
                  "the AutoencoderKL "
                  "that made them, as diffusers saves it (config.json, "
                  "diffusion_pytorch_model.safetensors), or a "
                  "file of TorchScript from [N,C,s,s] to [N,3,S,S] in [-1,1]")
      ->type_name("DIR|FILE");
  auto* encoder = command
                      .add_option("--text-encoder", sampling.text_encoder,
                                  "what encodes --prompt: the folder of the T5 encoder of the "
                                  "dataset's captions")
                      ->type_name("DIR");
  auto* embeddings =
      command
          .add_option(
              "--prompt-embeddings", sampling.prompt_embeddings,
              "prompts for an ensemble trained on captions, in turn: a .safetensors file with "
              "embeddings [N,L,D], mask [N,L] and null [n,D], the null caption, by the text "
              "encoder of its dataset")
          ->type_name("FILE");
  command
      .add_option("--prompt", sampling.prompts,
                  "what to draw, for an ensemble trained on captions; several are taken in turn")
      ->needs(encoder)
      ->excludes(embeddings)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command
      .add_option("--label", sampling.label, "a class by name or number; without it, all in turn")
      ->type_name("CLASS");
  command.add_option("--seed", sampling.seed, "the same seed draws the same images")
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--precision", sampling.precision,
                  "fp32, or bf16 for the experts' matrix products: faster on cards, other bits")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str()
      ->type_name("NAME");
  command.add_option("--threads", sampling.threads, "CPU threads")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
}

Result<std::string> label_number(const std::string& label,
                                 const std::vector<std::string>& classes) {
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] == label) return text(i);
  }
  std::size_t number = 0;
  const auto [rest, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  if (error == std::errc{} && rest == label.data() + label.size() && number < classes.size())
    return text(number);
  std::string known;
  for (std::size_t i = 0; i < classes.size() && i < 20; ++i)
    known += (i == 0 ? "" : ", ") + printable(classes[i]);
  if (classes.size() > 20) known += ", …";
  return fail(ErrorCode::kInvalid,
              classes.empty()
                  ? std::string("this ensemble was trained without labels: leave --label out")
                  : text("--label: expected a class or its number below ", classes.size(),
                         ", found '", printable(label), "'; the classes are ", known));
}

std::vector<std::string> sampling_words(const std::string& engine, const std::string& folder,
                                        const Sampling& sampling, const std::string& output) {
  std::vector<std::string> words = {engine,
                                    "sample",
                                    folder,
                                    "-n",
                                    text(sampling.count),
                                    "--steps",
                                    text(sampling.steps),
                                    "--solver",
                                    sampling.solver,
                                    "--guidance",
                                    text(sampling.guidance)};
  if (sampling.expert) {
    words.insert(words.end(), {"--expert", text(*sampling.expert)});
  } else {
    words.insert(words.end(), {"--route", sampling.route});
    if (!sampling.router.empty()) words.insert(words.end(), {"--router", sampling.router});
  }
  words.insert(words.end(), {"--seed", text(sampling.seed), "-o", output});
  if (sampling.label) words.insert(words.end(), {"--label", *sampling.label});
  if (!sampling.vae.empty()) words.insert(words.end(), {"--vae", sampling.vae});
  if (!sampling.prompt_embeddings.empty())
    words.insert(words.end(), {"--prompt-embeddings", sampling.prompt_embeddings});
  if (!sampling.prompts.empty())
    words.insert(words.end(), {"--text-encoder", sampling.text_encoder});
  // One word each, also where it begins with a dash.
  for (const std::string& prompt : sampling.prompts) words.push_back("--prompt=" + prompt);
  if (sampling.precision != "fp32") words.insert(words.end(), {"--precision", sampling.precision});
  if (sampling.threads > 0) words.insert(words.end(), {"--threads", text(sampling.threads)});
  return words;
}

}  // namespace skerry::cli
