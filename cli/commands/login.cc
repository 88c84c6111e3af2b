// SPDX-License-Identifier: Apache-2.0
// login TOKEN: makes this person known to the coordinator and remembers where
// it is.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/connect/context.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "protocol/context.h"

namespace skerry::cli {
namespace {

struct LoginOptions {
  std::string token;
  std::string name;
};

Result<int> login(Command& command, const LoginOptions& options) {
  const std::string token = options.token.empty()
                                ? command.around.environment("SKERRY_TOKEN").value_or("")
                                : options.token;
  if (token.empty()) {
    return fail(ErrorCode::kInvalid,
                "login needs a token: an administrator makes one with `skerry token create "
                "--role viewer` (or --role admin)");
  }
  const std::string path =
      command.context.empty() ? personal_context_path(command.around) : command.context;
  if (path.empty()) {
    return fail(ErrorCode::kInvalid,
                "no place for the context: set HOME or XDG_CONFIG_HOME, or give --context FILE");
  }
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    if (!protocol::read_context(path)) {
      return fail(ErrorCode::kConflict, text(path,
                                             " is there and is no context: choose another "
                                             "--context FILE, or remove it"));
    }
    if (!command.yes && !command.around.in_is_terminal()) {
      return fail(ErrorCode::kConflict, text(path, " leads to another login: --yes replaces it"));
    }
    TRY(command.confirm(text(path, " leads to another login. Replace it?")));
  }
  ASSIGN_OR_RETURN(const Surroundings::LoggedIn done,
                   command.around.login(token, options.name, path));
  if (command.json()) {
    print_object(command.out(), {{"context", done.path}, {"role", done.role}, {"name", done.name}});
  } else {
    command.tell(text("logged in as ", done.name, " (", done.role, "); ", done.path,
                      " says where the coordinator is and holds your key: keep it private"));
  }
  return kExitOk;
}

}  // namespace

void add_login_command(CLI::App& root, Command& command) {
  CLI::App* added =
      root.add_subcommand("login", "Uses a token to administer or view from this account");
  auto options = std::make_shared<LoginOptions>();
  added->add_option("TOKEN", options->token, "a token of role viewer or admin; or set SKERRY_TOKEN")
      ->type_name("");
  added->add_option("--name", options->name, "how you are shown; the account's name by default")
      ->type_name("NAME");
  added->footer(
      "Example:\n  skerry login skerry1.AbC…\nWrites $XDG_CONFIG_HOME/skerry/context.toml, or "
      "--context "
      "FILE.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return login(command, *options); };
  });
}

}  // namespace skerry::cli
