// SPDX-License-Identifier: Apache-2.0
// event list: what happened, oldest first, and what happens.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "cli/view/event_view.h"
#include "cli/view/listing.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::milliseconds kFollowEvery{500};

struct EventOptions {
  bool follow = false;
  std::string run;
  std::uint64_t after = 0;
};

Paint paint_of_kind(const std::string& kind) {
  for (const auto bad :
       {"node_lost", "engine_failed", "refused", "fenced", "lease_lost", "object_damaged"}) {
    if (kind == bad) return Paint::kBad;
  }
  return kind == "committed" || kind == "granted" || kind == "node_joined" ? Paint::kGood
                                                                           : Paint::kPlain;
}

// A line of its own for each event: a table's widths cannot be known while it
// grows.
void print_event(Command& command, const pb::Event& event) {
  std::ostream& out = command.out();
  std::string kind = printable(event.kind());
  kind.resize(std::max<std::size_t>(kind.size(), 20), ' ');
  out << utc_time(event.unix_ms()) << "  "
      << painted(kind, paint_of_kind(event.kind()), command.colour());
  if (!event.run().empty()) out << ' ' << printable(event.run());
  if (event.expert() >= 0) out << " expert " << event.expert();
  if (event.step() > 0) out << " step " << event.step();
  if (!event.node().empty()) out << " on " << printable(event.node());
  if (!event.reason().empty()) out << ": " << printable(event.reason());
  out << std::endl;
}

// What came before the coordinator went away is not asked for again.
Result<std::vector<pb::Event>> await_events(Command& command, Patience& patience,
                                            const std::string& run, std::uint64_t& after) {
  while (true) {
    Result<std::vector<pb::Event>> events = next_events(command, run, after);
    if (events.has_value()) {
      patience.answered();
      return events;
    }
    if (!patience.bears(events.error())) return events.error();
    command.around.wait(kFollowEvery);
  }
}

Result<int> list_events(Command& command, const EventOptions& options) {
  std::uint64_t after = options.after;
  Patience patience(command);
  ASSIGN_OR_RETURN(std::vector<pb::Event> events,
                   await_events(command, patience, options.run, after));
  if (command.json() && !options.follow) {
    Json items = Json::array();
    for (const pb::Event& event : events) items.push_back(event_json(event));
    print_items(command.out(), std::move(items));
    return kExitOk;
  }
  while (true) {
    for (const pb::Event& event : events) {
      if (command.json()) {
        print_line(command.out(), event_json(event));
      } else {
        print_event(command, event);
      }
    }
    if (!options.follow || !command.out()) return kExitOk;  // a closed pipe ends it
    command.around.wait(kFollowEvery);
    ASSIGN_OR_RETURN(events, await_events(command, patience, options.run, after));
  }
}

}  // namespace

void add_event_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("event", "What happened, with reasons");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("list", "Lists events, the oldest first");
  auto options = std::make_shared<EventOptions>();
  list->add_flag("-f,--follow", options->follow, "go on with what happens from now on");
  list->add_option("--run", options->run, "only of this run")->type_name("RUN");
  list->add_option("--after", options->after, "only events with a higher number")
      ->type_name("NUMBER");
  list->footer(
      "Example:\n  skerry event list --follow --run fashion\n"
      "With --follow -o json each event is one line; it goes on when the coordinator has "
      "restarted.");
  list->callback([&command, options] {
    command.chosen = [&command, options] { return list_events(command, *options); };
  });
}

}  // namespace skerry::cli
