// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "base/text.h"
#include "cli/run/run_keys.h"
#include "cli/shell/command.h"
#include "cli/shell/completion.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/version.h"

namespace skerry::cli {
namespace {

constexpr auto kIntroduction =
    "Skerry trains an ensemble of diffusion experts on whatever GPUs are there.\n"
    "This program asks the coordinator and shows what it says.";
constexpr auto kFooter =
    "A first run:\n"
    "  skerry dataset add fashion-mnist ~/images --partitions 4\n"
    "  skerry run create -f run.toml\n"
    "  skerry token create            # prints the command that joins a machine\n"
    "  skerry run watch fashion\n"
    "  skerry ensemble fetch fashion -o fashion-ensemble\n"
    "  skerry sample fashion-ensemble -n 16 -o grid.png\n"
    "\n"
    "The coordinator is found by --context, $SKERRY_CONTEXT, what `skerry login` wrote, or "
    "/etc/skerry/context.toml.\n"
    "Exit status: 0 ok, 1 error, 2 usage, 3 not found, 4 unreachable, 5 not allowed, 6 conflict, 7 "
    "timeout,\n"
    "8 unhealthy, 130 interrupted.";

void add_root_options(CLI::App& root, Command& command) {
  root.fallthrough();
  root.require_subcommand(1);
  root.footer(kFooter);
  root.add_option("-o,--output", command.format_name, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("FORMAT");
  root.add_option("--context", command.context,
                  "the context file that says where the coordinator is")
      ->type_name("FILE");
  root.add_flag("-y,--yes", command.yes, "do not ask before something is lost");
  root.set_version_flag("--version", own_software(), "print the version");
}

// Said once at the end of each: options of the root, which no other command's
// help shows, and where examples are.
void finish_help(CLI::App& app, const std::string& path) {
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    const bool leaf = sub->get_subcommands([](CLI::App*) { return true; }).empty();
    const bool own_output = sub->get_option_no_throw("--output") != nullptr;
    sub->footer(leaf
                    ? text(sub->get_footer(), "\nEvery command takes ",
                           own_output ? "" : "-o table|json, ", "--context FILE and --yes as well.")
                    : text("`", path, " ", sub->get_name(),
                           " COMMAND --help` shows each with an example."));
    finish_help(*sub, text(path, " ", sub->get_name()));
  }
}

void add_completion(CLI::App& root, Command& command) {
  CLI::App* completion = root.add_subcommand("completion", "Prints completions for a shell");
  auto shell = std::make_shared<std::string>("bash");
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->capture_default_str()
      ->type_name("");
  completion->footer(
      "Example:\n  source <(skerry completion bash)         # or zsh, after compinit\n"
      "  skerry completion fish | source");
  completion->callback([&root, &command, shell] {
    command.chosen = [&root, &command, shell]() -> Result<int> {
      command.out() << (*shell == "fish"  ? fish_completion(root)
                        : *shell == "zsh" ? zsh_completion(root)
                                          : bash_completion(root));
      return kExitOk;
    };
  });
}

// The innermost command that was named, for "--help" hints.
const CLI::App& named_command(const CLI::App& root) {
  const CLI::App* at = &root;
  for (auto deeper = at->get_subcommands(); !deeper.empty(); deeper = at->get_subcommands())
    at = deeper.front();
  return *at;
}

std::string full_command(const CLI::App* app) {
  return app->get_parent() == nullptr ? app->get_name()
                                      : full_command(app->get_parent()) + " " + app->get_name();
}

std::vector<std::string> command_names(const CLI::App& at) {
  std::vector<std::string> names;
  for (const CLI::App* sub : at.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& at) {
  std::vector<std::string> names;
  for (const CLI::App* app = &at; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

std::string near(const std::string& word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  return std::string(nearest_word(word, known));
}

// Words that are no options and no values of the root's.
std::vector<std::string> bare_words(const std::vector<std::string>& words) {
  std::vector<std::string> bare;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "-o" || words[i] == "--output" || words[i] == "--context") {
      ++i;
    } else if (!words[i].starts_with("-")) {
      bare.push_back(words[i]);
    }
  }
  return bare;
}

// The word that stands where a command of `at` should, and what it may have
// meant; empty where there is none.
std::string unknown_command(const CLI::App& at, const std::vector<std::string>& words) {
  const std::vector<std::string> bare = bare_words(words);
  std::size_t depth = 0;
  for (const CLI::App* group = at.get_parent(); group != nullptr; group = group->get_parent())
    ++depth;
  if (bare.size() <= depth) return "";
  const std::string meant = near(bare[depth], command_names(at));
  return text("there is no command '", full_command(&at), " ", printable(bare[depth]), "'",
              meant.empty() ? "" : text(": did you mean '", full_command(&at), " ", meant, "'?"));
}

std::string unknown_option(const CLI::App& at, const std::vector<std::string>& words) {
  const std::vector<std::string> names = option_names(at);
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || name == "--") continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string meant = near(name, names);
    return text("`", full_command(&at), "` has no option ", printable(name),
                meant.empty() ? "" : text(": did you mean ", meant, "?"));
  }
  return "";
}

int report_usage(const CLI::App& root, const CLI::ParseError& error,
                 const std::vector<std::string>& words, Surroundings& around) {
  const CLI::App& at = named_command(root);
  const bool leaf = command_names(at).empty();
  std::string said = unknown_option(at, words);
  if (said.empty() && !leaf) {
    said = unknown_command(at, words);
    if (said.empty()) {             // nothing wrong was said, only too little
      around.err() << root.help();  // of the command that was named
      return kExitUsage;
    }
  }
  around.err() << "skerry: " << (said.empty() ? printable(error.what()) : said) << '\n';
  around.err() << "`" << full_command(&at) << " --help` shows what it expects\n";
  return kExitUsage;
}

int report(const Error& error, Surroundings& around) {
  around.err() << "skerry: " << error.message << std::endl;
  return exit_code(error.code);
}

// A script that reads nothing must not go on as if that were the answer.
int finish(int status, Surroundings& around) {
  const Result<void> written = around.flush_out();
  return written ? status : report(written.error(), around);
}

}  // namespace

int run_cli(const std::vector<std::string>& words, Surroundings& around) {
  Command command(around);
  CLI::App root(kIntroduction, "skerry");
  add_root_options(root, command);
  add_token_commands(root, command);
  add_login_command(root, command);
  add_node_commands(root, command);
  add_peer_commands(root, command);
  add_dataset_commands(root, command);
  add_run_commands(root, command);
  add_chunk_commands(root, command);
  add_event_commands(root, command);
  add_dashboard_command(root, command);
  add_ensemble_commands(root, command);
  add_sample_command(root, command);
  add_doctor_commands(root, command);
  add_completion(root, command);
  finish_help(root, "skerry");
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    root.parse(reversed);
  } catch (const CLI::Success& asked) {
    root.exit(asked, around.out(), around.err());
    return finish(kExitOk, around);
  } catch (const CLI::ParseError& error) {
    return report_usage(root, error, words, around);
  }
  const Result<int> status = command.chosen();
  return finish(status.has_value() ? *status : report(status.error(), around), around);
}

}  // namespace skerry::cli
