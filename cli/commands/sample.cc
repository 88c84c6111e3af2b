// SPDX-License-Identifier: Apache-2.0
// sample DIR: hands over to the engine, which draws the images.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/text.h"
#include "cli/ensemble/sampling.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

struct SampleOptions {
  std::string folder;
  std::string output;
  std::string images;
  Sampling sampling;
};

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
    return fail(ErrorCode::kCorrupt,
                text(folder, "/ensemble.json is damaged: fetch the ensemble again"));
  }
  for (const Json& name : index["classes"])
    classes.push_back(name.is_string() ? name.get<std::string>() : "");
  return classes;
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
  Sampling& sampling = options.sampling;
  if (sampling.label) {
    ASSIGN_OR_RETURN(sampling.label, label_number(*sampling.label, classes));
  }
  TRY(check_output(options.output));
  ASSIGN_OR_RETURN(const std::string engine, command.around.find_program("skerry-engine"));
  std::vector<std::string> words = sampling_words(engine, options.folder, sampling, options.output);
  if (!options.images.empty()) words.insert(words.end(), {"--images", options.images});
  return command.around.become_program(words);
}

}  // namespace

void add_sample_command(CLI::App& root, Command& command) {
  CLI::App* added = root.add_subcommand("sample", "Draws images from a fetched ensemble");
  auto options = std::make_shared<SampleOptions>();
  added->add_option("DIR", options->folder, "the ensemble's folder")->required()->type_name("");
  added->add_option("-o,--output", options->output, "the picture: a grid of all images")
      ->required()
      ->type_name("FILE.png");
  added->add_option("--images", options->images, "a folder for the single images")
      ->type_name("DIR");
  add_sampling_options(*added, options->sampling);
  added
      ->add_option("--expert", options->sampling.expert, "this one draws every image, of any class")
      ->excludes("--route", "--router")
      ->type_name("INDEX");
  added->footer(
      "Example:\n  skerry sample fashion-ensemble -n 100 --guidance 2 --label sneaker -o grid.png");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return sample(command, *options); };
  });
}

}  // namespace skerry::cli
