// sample DIR: hands over to the engine, which draws the images.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/text.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

struct SampleOptions {
  std::string folder;
  std::string output;
  std::string images;
  std::uint32_t count = 16;
  std::uint32_t steps = 50;
  std::string solver = "euler";
  double guidance = 1.0;
  std::string route = "ancestral";
  std::string router;  // empty: the ensemble's
  std::string vae;     // empty: pixels need none
  std::optional<std::string> label;
  std::uint64_t seed = 0;
  std::uint32_t threads = 0;
};

std::vector<std::string> engine_words(const std::string& engine, const SampleOptions& options) {
  std::vector<std::string> words = {engine,
                                    "sample",
                                    options.folder,
                                    "-n",
                                    text(options.count),
                                    "--steps",
                                    text(options.steps),
                                    "--solver",
                                    options.solver,
                                    "--guidance",
                                    text(options.guidance),
                                    "--route",
                                    options.route,
                                    "--seed",
                                    text(options.seed),
                                    "-o",
                                    options.output};
  if (options.label) words.insert(words.end(), {"--label", *options.label});
  if (!options.images.empty()) words.insert(words.end(), {"--images", options.images});
  if (!options.router.empty()) words.insert(words.end(), {"--router", options.router});
  if (!options.vae.empty()) words.insert(words.end(), {"--vae", options.vae});
  if (options.threads > 0) words.insert(words.end(), {"--threads", text(options.threads)});
  return words;
}

Result<std::vector<std::string>> classes_of(const std::string& folder) {
  std::ifstream file(folder + "/ensemble.json");
  if (!file) {
    return fail(ErrorCode::kNotFound, text(folder,
                                           " is not an ensemble (it has no ensemble.json): "
                                           "`skerry ensemble fetch RUN -o DIR` makes one"));
  }
  const Json index = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> classes;
  if (!index.is_object() || !index.contains("classes") || !index["classes"].is_array()) {
    return fail(ErrorCode::kCorrupt, text(folder, "/ensemble.json is damaged: fetch the ensemble again"));
  }
  for (const Json& name : index["classes"])
    classes.push_back(name.is_string() ? name.get<std::string>() : "");
  return classes;
}

// The engine takes a class by its number.
Result<std::string> label_number(const std::string& label, const std::vector<std::string>& classes) {
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
              classes.empty() ? std::string("this ensemble was trained without labels: leave --label out")
                              : text("--label: expected a class or its number below ", classes.size(),
                                     ", found '", printable(label), "'; the classes are ", known));
}

// Drawing may take long: a picture that could not be written is told before.
Result<void> check_output(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::kInvalid,
                text("-o ", path, " is a folder: name a picture, such as ", path, "/grid.png"));
  }
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return {};
  return system_error("write to", folder.empty() ? "." : folder, errno);
}

Result<int> sample(Command& command, SampleOptions options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> classes, classes_of(options.folder));
  if (options.label) {
    ASSIGN_OR_RETURN(options.label, label_number(*options.label, classes));
  }
  TRY(check_output(options.output));
  ASSIGN_OR_RETURN(const std::string engine, command.around.find_program("skerry-engine"));
  return command.around.become_program(engine_words(engine, options));
}

}  // namespace

void add_sample_command(CLI::App& root, Command& command) {
  CLI::App* added = root.add_subcommand("sample", "Draws images from a fetched ensemble");
  auto options = std::make_shared<SampleOptions>();
  added->add_option("DIR", options->folder, "the ensemble's folder")->required()->type_name("");
  added->add_option("-n,--count", options->count, "how many images")
      ->check(CLI::Range(1U, 100000U))
      ->capture_default_str()
      ->type_name("N");
  added->add_option("-o,--output", options->output, "the picture: a grid of all images")
      ->required()
      ->type_name("FILE.png");
  added->add_option("--images", options->images, "a folder for the single images")->type_name("DIR");
  added->add_option("--steps", options->steps, "steps of the solver")
      ->check(CLI::Range(1U, 10000U))
      ->capture_default_str()
      ->type_name("N");
  added
      ->add_option("--solver", options->solver,
                   "euler; heun (twice the work of a step, far smaller error); adams (the work of "
                   "euler, an error like heun's; for the routes ancestral and full)")
      ->check(CLI::IsMember({"euler", "heun", "adams"}))
      ->capture_default_str()
      ->type_name("NAME");
  added->add_option("--guidance", options->guidance, "guidance scale; 1: none")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str()
      ->type_name("SCALE");
  added->add_option("--route", options->route, "ancestral (one expert an image), or mixing top1, top2, full")
      ->check(CLI::IsMember({"ancestral", "top1", "top2", "full"}))
      ->capture_default_str()
      ->type_name("NAME");
  added
      ->add_option(
          "--router", options->router,
          "who is asked by top1, top2 and full: analytic or learned; without it, what the run trained")
      ->check(CLI::IsMember({"analytic", "learned"}))
      ->type_name("NAME");
  added
      ->add_option(
          "--vae", options->vae,
          "what decodes latents into images, where those were trained on: the folder of the AutoencoderKL "
          "that made them, as diffusers saves it (config.json, diffusion_pytorch_model.safetensors), or a "
          "file of TorchScript from [N,C,s,s] to [N,3,S,S] in [-1,1]")
      ->type_name("DIR|FILE");
  added->add_option("--label", options->label, "a class by name or number; without it, all in turn")
      ->type_name("CLASS");
  added->add_option("--seed", options->seed, "the same seed draws the same images")
      ->capture_default_str()
      ->type_name("N");
  added->add_option("--threads", options->threads, "CPU threads")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  added->footer("Example:\n  skerry sample fashion-ensemble -n 100 --guidance 2 --label sneaker -o grid.png");
  added->callback(
      [&command, options] { command.chosen = [&command, options] { return sample(command, *options); }; });
}

}  // namespace skerry::cli
