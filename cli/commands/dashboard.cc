// SPDX-License-Identifier: Apache-2.0
// dashboard: starts skerry-dashboard, the page for people.
#include "cli/commands/dashboard.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/text.h"
#include "cli/shell/command.h"

namespace skerry::cli {
namespace {

Result<int> start(Command& command, const DashboardOptions& options) {
  ASSIGN_OR_RETURN(const std::string program, command.around.find_program("skerry-dashboard"));
  std::vector<std::string> words = {program, "--port", text(options.port), "--listen",
                                    options.listen};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--context", command.context);
  add("--config", options.config);
  add("--tls-cert", options.certificate);
  add("--tls-key", options.key);
  for (const std::string& host : options.hosts) add("--host", host);
  if (options.no_open) words.emplace_back("--no-open");
  if (options.behind_proxy) words.emplace_back("--behind-proxy");
  if (!options.run.empty()) words.push_back(options.run);
  return command.around.become_program(words);
}

}  // namespace

void add_dashboard_options(CLI::App& app, DashboardOptions& options) {
  app.add_option("RUN", options.run, "the run that the page shows first")->type_name("");
  app.add_option("--port", options.port, "the port; 0: any that is free")
      ->capture_default_str()
      ->type_name("N");
  app.add_flag("--no-open", options.no_open, "open no browser");
  app.add_option("--config", options.config,
                 "a TOML file with a section [notify]: url, command, cursor")
      ->type_name("FILE");
  app.add_option("--listen", options.listen,
                 "the address; one that others reach needs TLS or a proxy, and a session")
      ->capture_default_str()
      ->type_name("ADDRESS");
  app.add_option("--host", options.hosts,
                 "a name by which browsers reach it, beside localhost and the address; repeatable")
      ->type_name("NAME");
  CLI::Option* certificate =
      app.add_option("--tls-cert", options.certificate, "a certificate chain in PEM")
          ->type_name("FILE");
  app.add_option("--tls-key", options.key, "its private key in PEM")
      ->needs(certificate)
      ->type_name("FILE");
  certificate->needs("--tls-key");
  app.add_flag("--behind-proxy", options.behind_proxy,
               "a proxy in front of it does TLS; viewers need a session");
}

void add_dashboard_command(CLI::App& root, Command& command) {
  CLI::App* added =
      root.add_subcommand("dashboard", "Serves a page that shows runs, nodes and events");
  auto options = std::make_shared<DashboardOptions>();
  add_dashboard_options(*added, *options);
  added->footer(
      "Example:\n  skerry dashboard fashion\nIt goes on until an interrupt. `skerry-dashboard "
      "--help` says more.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return start(command, *options); };
  });
}

}  // namespace skerry::cli
