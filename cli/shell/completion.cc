// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/completion.h"

#include <CLI/CLI.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace skerry::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string names_of(const std::vector<const CLI::App*>& commands) {
  std::string names;
  for (const CLI::App* each : commands) names += (names.empty() ? "" : " ") + each->get_name();
  return names;
}

// The commands below `app`, its options and those that every command takes.
std::string words_of(const CLI::App& app, const CLI::App& root) {
  std::set<std::string> options;
  for (const CLI::App* of : {&app, &root}) {
    for (const CLI::Option* option : of->get_options()) {
      for (const std::string& name : option->get_lnames()) options.insert("--" + name);
    }
  }
  std::string words = names_of(commands_of(app));
  for (const std::string& option : options) words += (words.empty() ? "" : " ") + option;
  return words;
}

void add_cases(const CLI::App& app, const CLI::App& root, const std::string& path,
               std::ostream& out) {
  out << "    '" << path << "') words=\"" << words_of(app, root) << "\" ;;\n";
  for (const CLI::App* sub : commands_of(app)) {
    add_cases(*sub, root, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
  }
}

// Between single quotes, as fish reads them.
std::string fish_quoted(const std::string& words) {
  std::string out = "'";
  for (const char c : words) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// What fish is told for one command, which is the one being typed where `when`
// holds.
void add_fish(const CLI::App& app, const std::string& when, std::ostream& out) {
  const std::string line = "complete -c skerry -n " + fish_quoted(when);
  for (const CLI::Option* option : app.get_options()) {
    const bool takes_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames())
      out << line << " -l " << name << (takes_value ? " -r" : "") << "\n";
  }
  const std::vector<const CLI::App*> commands = commands_of(app);
  if (commands.empty()) return;
  const std::string first = "not __fish_seen_subcommand_from " + names_of(commands);
  const std::string here = when == "true" ? first : when + "; and " + first;
  for (const CLI::App* each : commands) {
    out << "complete -c skerry -f -n " << fish_quoted(here) << " -a " << each->get_name() << " -d "
        << fish_quoted(each->get_description()) << "\n";
    const std::string seen = "__fish_seen_subcommand_from " + each->get_name();
    add_fish(*each, when == "true" ? seen : when + "; and " + seen, out);
  }
}

}  // namespace

// Also read by zsh, whose arrays have no such slices and whose `path` is its
// search path.
std::string bash_completion(const CLI::App& root) {
  std::ostringstream out;
  out << "_skerry() {\n"
         "  local i word said='' words=''\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    word=\"${COMP_WORDS[i]}\"\n"
         "    [[ $word == -* ]] && continue\n"
         "    case \"${said:+$said }$word\" in\n";
  for (const CLI::App* group : commands_of(root)) {
    out << "      '" << group->get_name() << "'";
    for (const CLI::App* sub : commands_of(*group)) {
      out << "|'" << group->get_name() << " " << sub->get_name() << "'";
    }
    out << ") said=\"${said:+$said }$word\" ;;\n";
  }
  out << "    esac\n  done\n  case \"$said\" in\n";
  add_cases(root, root, "", out);
  out << "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
         "}\n"
         "complete -o default -F _skerry skerry\n";
  return out.str();
}

std::string zsh_completion(const CLI::App& root) {
  return "autoload -U +X bashcompinit && bashcompinit\n" + bash_completion(root);
}

std::string fish_completion(const CLI::App& root) {
  std::ostringstream out;
  add_fish(root, "true", out);  // its options go with every command
  return out.str();
}

}  // namespace skerry::cli
