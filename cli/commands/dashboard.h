// SPDX-License-Identifier: Apache-2.0
// The options of the dashboard: `skerry dashboard` passes them on, and
// skerry-dashboard parses them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace skerry::cli {

struct DashboardOptions {
  std::string run;  // that the page shows first; empty: the newest
  std::uint16_t port = 7680;
  bool no_open = false;
  std::string listen = "127.0.0.1";
  std::vector<std::string> hosts;
  std::string certificate, key;
  bool behind_proxy = false;
  std::string config;  // a file with the section [notify]
};

// LIFETIME: `options` outlives `app`.
void add_dashboard_options(CLI::App& app, DashboardOptions& options);

}  // namespace skerry::cli
