// SPDX-License-Identifier: Apache-2.0
// skerry-dashboard: a page that shows what a coordinator reports.
#include <spawn.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>

#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/text.h"
#include "cli/commands/dashboard.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "cli/shell/real_surroundings.h"
#include "cli/shell/version.h"
#include "dashboard/messenger.h"
#include "dashboard/server.h"
#include "dashboard/watcher.h"
#include "storage/files.h"

extern char** environ;

namespace skerry::dashboard {
namespace {

constexpr std::chrono::seconds kLookEvery{1};        // while somebody looks
constexpr std::chrono::seconds kLookSeldomEvery{5};  // for /metrics
constexpr std::chrono::seconds kViewerStaysFor{20};  // after its last request
constexpr std::chrono::milliseconds kTick{100};

constexpr auto kIntroduction =
    "Serves a page that shows the runs, nodes and events of a coordinator.\n"
    "It asks the coordinator once for all viewers, and changes nothing there.";
constexpr auto kFooter =
    "Examples:\n"
    "  skerry-dashboard fashion\n"
    "  skerry-dashboard --no-open --listen 0.0.0.0 --host runs.example.org \\\n"
    "    --tls-cert cert.pem --tls-key key.pem\n"
    "\n"
    "Paths: /, /api/v1/runs, /api/v1/run/NAME, /api/v1/run/NAME/history, /api/v1/nodes,\n"
    "/api/v1/events, /api/v1/attention, /api/v1/status, /api/events (a stream of what changed), "
    "/metrics.\n"
    "Beyond loopback it prints a one-time URL, which starts a session in the browser.\n"
    "Exit status: as of skerry.";

bool is_loopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.");
}

std::string bracketed(const std::string& address) {
  return address.find(':') == std::string::npos ? address : text('[', address, ']');
}

Result<std::string> read_pem(const std::string& path) {
  if (path.empty()) return std::string();
  ASSIGN_OR_RETURN(const storage::MappedFile file, storage::MappedFile::open(path));
  return std::string(file.bytes());
}

Result<Server::Options> server_options(const cli::DashboardOptions& asked) {
  const bool shared = !is_loopback(asked.listen) || asked.behind_proxy;
  if (!is_loopback(asked.listen) && asked.certificate.empty() && !asked.behind_proxy) {
    return fail(ErrorCode::kInvalid,
                text("--listen ", asked.listen,
                     " is reached by others: expected --tls-cert and --tls-key, or --behind-proxy, "
                     "found neither"));
  }
  Server::Options options;
  options.address = asked.listen;
  options.port = asked.port;
  ASSIGN_OR_RETURN(options.certificate, read_pem(asked.certificate));
  ASSIGN_OR_RETURN(options.key, read_pem(asked.key));
  options.access.needs_session = shared;
  options.access.hosts = {"localhost", "127.0.0.1", "[::1]", bracketed(asked.listen)};
  options.access.hosts.insert(options.access.hosts.end(), asked.hosts.begin(), asked.hosts.end());
  return options;
}

// What a browser on this machine, or on another, opens.
std::string address_of(const cli::DashboardOptions& asked, std::uint16_t port) {
  const std::string host = asked.hosts.empty() ? bracketed(asked.listen) : asked.hosts.front();
  if (asked.behind_proxy) return text("https://", host);
  return text(asked.certificate.empty() ? "http://" : "https://", host, ':', port);
}

// Opens the browser of a desktop, and waits for nothing.
void open_browser(cli::Surroundings& around, const std::string& url) {
  const bool desktop = !around.environment("DISPLAY").value_or("").empty() ||
                       !around.environment("WAYLAND_DISPLAY").value_or("").empty();
  const Result<std::string> opener = around.find_program("xdg-open");
  if (!desktop || !opener.has_value()) return;
  std::string words[] = {*opener, url};
  char* const arguments[] = {words[0].data(), words[1].data(), nullptr};
  std::signal(SIGCHLD, SIG_IGN);  // nobody waits for it
  pid_t child = 0;
  ::posix_spawn(&child, words[0].c_str(), nullptr, nullptr, arguments, environ);
}

// A connection takes a descriptor.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<void> check_run(const std::string& name, const FleetState& state) {
  if (name.empty() || !state.away.empty()) return {};
  for (const auto& [id, run] : state.runs) {
    if (id == name || run.info.name() == name) return {};
  }
  return fail(ErrorCode::kNotFound,
              text("there is no run ", cli::printable(name), "; see `skerry run list`"));
}

// RETURNS: nullptr if nothing is to be sent.
Result<std::unique_ptr<Messenger>> messenger_of(const cli::DashboardOptions& asked,
                                                const Clock& clock) {
  if (asked.config.empty()) return std::unique_ptr<Messenger>();
  ASSIGN_OR_RETURN(NotifyOptions options, read_notify_options(asked.config));
  if (!options.any()) return std::unique_ptr<Messenger>();
  return Messenger::start(std::move(options), clock);
}

Result<int> serve(cli::Command& command, const cli::DashboardOptions& asked) {
  Board board;
  const SystemClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Messenger> messenger, messenger_of(asked, clock));
  Watcher watcher(command, board, [&](const std::vector<pb::Event>& events) {
    if (messenger) messenger->offer(events);
  });
  ASSIGN_OR_RETURN(Server::Options options, server_options(asked));
  std::string base;
  const auto say_key = [&](const std::string& key) {
    command.tell(text("the next session starts at ", base, "/login?key=", key));
  };
  options.next_key = say_key;
  const bool needs_session = options.access.needs_session;
  ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::start(board, std::move(options)));
  base = address_of(asked, server->port());
  const Result<void> first = watcher.look();
  if (!first.has_value() && !cli::may_pass(first.error())) return first.error();
  TRY(check_run(asked.run, watcher.state()));
  const std::string fragment = asked.run.empty() ? "" : "#" + asked.run;
  const std::string url =
      needs_session ? text(base, "/login?key=", server->first_key()) : text(base, "/", fragment);
  command.out() << url << std::endl;
  if (!first.has_value()) command.tell("the coordinator is away: " + first.error().message);
  Notifier().ready();
  if (!asked.no_open) open_browser(command.around, url);
  while (true) {
    server->publish();
    const auto start = command.around.uptime();
    while (command.around.uptime() - start <
           (server->has_viewer(kViewerStaysFor) ? kLookEvery : kLookSeldomEvery))
      command.around.wait(kTick);
    const bool was_away = !watcher.state().away.empty();
    const Result<void> looked = watcher.look();
    if (looked.has_value() == was_away)
      command.tell(was_away ? "the coordinator is back"
                            : "the coordinator is away: " + looked.error().message);
  }
}

int run(int count, char** words) {
  allow_descriptors();
  const auto around = cli::real_surroundings();
  cli::Command command(*around);
  cli::DashboardOptions options;
  CLI::App app(kIntroduction, "skerry-dashboard");
  app.footer(kFooter);
  cli::add_dashboard_options(app, options);
  app.add_option("--context", command.context,
                 "the context file that says where the coordinator is; a viewer's suffices")
      ->type_name("FILE");
  app.set_version_flag("--version", text("skerry-dashboard ", cli::own_version()),
                       "print the version");
  try {
    app.parse(count, words);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << "skerry-dashboard: " << cli::printable(error.what())
              << "\n`skerry-dashboard --help` shows what it expects\n";
    return cli::kExitUsage;
  }
  const Result<int> status = serve(command, options);
  if (status.has_value()) return *status;
  std::cerr << "skerry-dashboard: " << status.error().message << std::endl;
  return cli::exit_code(status.error().code);
}

}  // namespace
}  // namespace skerry::dashboard

int main(int count, char** words) {
  skerry::init_log("skerry-dashboard", skerry::LogLevel::kWarning);
  return skerry::dashboard::run(count, words);
}
