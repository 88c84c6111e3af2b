#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace skerry::cli {
namespace {

std::string words_of(const CLI::App& app, const CLI::App& root) {
  std::ostringstream out;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    out << sub->get_name() << ' ';
  const auto add_options = [&out](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options()) {
      for (const std::string& name : option->get_lnames()) out << "--" << name << ' ';
    }
  };
  add_options(app);
  if (&app != &root) add_options(root);
  std::string words = out.str();
  words.pop_back();
  return words;
}

void add_cases(const CLI::App& app, const CLI::App& root, const std::string& path, std::ostream& out) {
  out << "    '" << path << "') words=\"" << words_of(app, root) << "\" ;;\n";
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    add_cases(*sub, root, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
  }
}

}  // namespace

std::string bash_completion(const CLI::App& root) {
  std::ostringstream out;
  out << "_skerry() {\n"
         "  local path='' word words=''\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    [[ $word == -* ]] && continue\n"
         "    case \"${path:+$path }$word\" in\n";
  for (const CLI::App* group : root.get_subcommands([](const CLI::App*) { return true; })) {
    out << "      '" << group->get_name() << "'";
    for (const CLI::App* sub : group->get_subcommands([](const CLI::App*) { return true; })) {
      out << "|'" << group->get_name() << " " << sub->get_name() << "'";
    }
    out << ") path=\"${path:+$path }$word\" ;;\n";
  }
  out << "    esac\n  done\n  case \"$path\" in\n";
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
  const auto offer = [&out](const std::string& when, const CLI::App& app) {
    const std::string first = app.get_parent() == nullptr ? "__fish_use_subcommand" : when;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      out << "complete -c skerry -n '" << first << "' -a " << sub->get_name() << " -d \""
          << sub->get_description() << "\"\n";
    }
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        out << "complete -c skerry -n '" << when << "' -l " << name
            << (option->get_type_size() > 0 ? " -r" : "") << "\n";
      }
    }
  };
  offer("true", root);  // its options go with every command
  for (const CLI::App* group : root.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string in_group = "__fish_seen_subcommand_from " + group->get_name();
    offer(in_group, *group);
    for (const CLI::App* sub : group->get_subcommands([](const CLI::App*) { return true; }))
      offer(in_group + "; and __fish_seen_subcommand_from " + sub->get_name(), *sub);
  }
  return out.str();
}

}  // namespace skerry::cli
