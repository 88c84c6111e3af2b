// SPDX-License-Identifier: Apache-2.0
#include "dashboard/watcher.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/text.h"
#include "cli/run/follow_run.h"
#include "cli/run/run_history.h"
#include "cli/run/run_view.h"
#include "cli/shell/version.h"
#include "cli/view/event_view.h"
#include "cli/view/listing.h"
#include "cli/view/node_view.h"
#include "dashboard/attention.h"
#include "dashboard/metrics.h"

namespace skerry::dashboard {
namespace {

using cli::Json;

// The same bytes that a command prints with -o json.
std::string object_text(Json object) {
  std::ostringstream out;
  cli::print_object(out, std::move(object));
  return out.str();
}

std::string items_text(Json items) {
  std::ostringstream out;
  cli::print_items(out, std::move(items));
  return out.str();
}

std::string path_of(const std::string& run) { return "/api/v1/run/" + run; }

// Commits and transfers are the normal course, and would push out the rest.
bool is_told(const pb::Event& event) {
  return event.kind() != "committed" && event.kind() != "transfer";
}

}  // namespace

Result<void> Watcher::look() {
  Result<void> asked = ask();
  const std::int64_t now = command_.around.unix_ms();
  if (asked.has_value()) {
    state_.unix_ms = now;
    state_.away.clear();
    show();
  } else {
    if (state_.away.empty()) state_.away_since_unix_ms = now;
    state_.away = asked.error().message;
  }
  show_status();
  board_.put("/metrics", "text/plain; version=0.0.4; charset=utf-8", metrics_text(state_));
  return asked;
}

Result<void> Watcher::ask() {
  history_asks_ = 0;
  TRY(ask_status());
  ASSIGN_OR_RETURN(roster_, cli::all_nodes(command_));
  state_.nodes.clear();
  for (const pb::NodeInfo& node : roster_) {
    if (node.role() == pb::ROLE_NODE) state_.nodes.push_back(node);
  }
  ASSIGN_OR_RETURN(list_, cli::all_runs(command_));
  std::set<std::string> there;
  for (const pb::RunInfo& run : list_) {
    there.insert(run.id());
    Result<void> asked = ask_run(run);
    if (!asked.has_value() && asked.error().code != ErrorCode::kNotFound) return asked;
  }
  std::erase_if(state_.runs, [&](const auto& run) { return there.count(run.first) == 0; });
  return ask_events();
}

Result<void> Watcher::ask_status() {
  pb::AdminRequest request;
  request.mutable_status();
  ASSIGN_OR_RETURN(const pb::AdminReply reply, command_.ask(request));
  if (!reply.has_status()) return cli::unexpected_reply();
  if (state_.coordinator.started_unix_ms() != reply.status().started_unix_ms()) read_anew();
  state_.coordinator = reply.status();
  state_.lacks_room = reply.lacks_room();
  return {};
}

// A restored coordinator may have other events and commits under the same
// numbers.
void Watcher::read_anew() {
  state_.runs.clear();
  state_.events.clear();
  listed_.clear();
  read_head_.clear();
  last_event_ = 0;
}

// One that has ended, and about which the list says the same as before, is not
// asked for again.
Result<void> Watcher::ask_run(const pb::RunInfo& listed) {
  const std::string said = listed.SerializeAsString();
  const auto found = state_.runs.find(listed.id());
  const bool same = found != state_.runs.end() && listed_[listed.id()] == said;
  RunState& run = state_.runs[listed.id()];
  if (!same || !cli::has_ended(listed)) {
    ASSIGN_OR_RETURN(
        run.info,
        cli::one_run(command_, cli::named(&pb::AdminRequest::mutable_run_show, listed.id())));
    listed_[listed.id()] = said;
  }
  return ask_history(run);
}

Result<void> Watcher::ask_history(RunState& run) {
  for (const pb::ExpertInfo& expert : run.info.experts()) {
    std::string& read = read_head_[text(run.info.id(), '/', expert.index())];
    if (expert.checkpoint().empty() || read == expert.checkpoint()) continue;
    if (++history_asks_ > kHistoryAsks) return {};
    TRY(cli::each_point(command_, run.info.id(), expert.index(), run.track.last(expert.index()),
                        [&](const pb::HistoryPoint& point) -> Result<void> {
                          run.track.add(expert.index(), point);
                          return {};
                        }));
    read = expert.checkpoint();
  }
  return {};
}

Result<void> Watcher::ask_events() {
  ASSIGN_OR_RETURN(const std::vector<pb::Event> events,
                   cli::next_events(command_, "", last_event_));
  for (const pb::Event& event : events) {
    if (!is_told(event)) continue;
    state_.events.push_back(event);
    if (state_.events.size() > kEvents) state_.events.pop_front();
  }
  if (on_events_) on_events_(events);
  return {};
}

void Watcher::show() {
  Json runs = Json::array(), nodes = Json::array(), events = Json::array();
  for (const pb::RunInfo& run : list_) runs.push_back(cli::run_json(run));
  for (const pb::NodeInfo& node : roster_) nodes.push_back(cli::node_json(node));
  for (const pb::Event& event : state_.events) events.push_back(cli::event_json(event));
  board_.put_json("/api/v1/runs", items_text(std::move(runs)));
  board_.put_json("/api/v1/nodes", items_text(std::move(nodes)));
  board_.put_json("/api/v1/events", items_text(std::move(events)));
  std::set<std::string> kept;
  for (const auto& [id, run] : state_.runs) {
    for (const std::string& path : {path_of(run.info.name()), path_of(id)})
      kept.insert({path, path + "/history"});
    show_run(run);
  }
  board_.keep_only(path_of(""), kept);
}

void Watcher::show_run(const RunState& run) {
  const std::string path = path_of(run.info.name()), by_id = path_of(run.info.id());
  board_.put_json(path, object_text(cli::run_show_json(run.info)));
  board_.put_json(path + "/history", run.track.json());
  board_.put_alias(by_id, path);
  board_.put_alias(by_id + "/history", path + "/history");
}

void Watcher::show_status() {
  const bool away = !state_.away.empty();
  const pb::StatusReply& told = state_.coordinator;
  board_.put_json(
      "/api/v1/status",
      object_text({{"reachable", !away},
                   {"away_since", away ? cli::time_or_null(state_.away_since_unix_ms) : Json()},
                   {"reason", cli::text_or_null(state_.away)},
                   {"coordinator", cli::text_or_null(told.software())},
                   {"started_at", cli::time_or_null(told.started_unix_ms())},
                   {"recovering", told.recovering()},
                   {"disk_full", state_.lacks_room},
                   {"dashboard", cli::own_software()}}));
  board_.put_json("/api/v1/attention", items_text(matters_for_a_person(state_)));
}

}  // namespace skerry::dashboard
