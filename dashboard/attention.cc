// SPDX-License-Identifier: Apache-2.0
#include "dashboard/attention.h"

#include <set>

#include "base/text.h"
#include "cli/run/follow_run.h"

namespace skerry::dashboard {
namespace {

using cli::Json;

constexpr std::int64_t kLostForMs = 24 * 3'600'000;  // then a lost node is no news
constexpr std::int64_t kEventForMs = 3'600'000;

class Matters {
 public:
  void add(bool bad, const std::string& what, const std::string& reason, const std::string& todo) {
    (bad ? bad_ : warning_)
        .push_back({{"level", bad ? "bad" : "warning"},
                    {"what", cli::printable(what)},
                    {"reason", cli::text_or_null(reason)},
                    {"do", cli::text_or_null(todo)}});
  }
  Json all() const {
    Json out = Json::array();
    for (const Json* list : {&bad_, &warning_}) {
      for (const Json& each : *list) {
        if (out.size() < kMatters) out.push_back(each);
      }
    }
    return out;
  }

 private:
  Json bad_ = Json::array(), warning_ = Json::array();
};

void add_run(const RunState& run, Matters& matters) {
  const std::string& name = run.info.name();
  const std::string& state = run.info.state();
  const std::string why = text("skerry run why ", name);
  if (state == "failed") {
    matters.add(true, text("Run ", name, " failed"), run.info.reason(), why);
  } else if (state == "paused") {
    matters.add(false, text("Run ", name, " is paused"), run.info.reason(),
                text("skerry run resume ", name));
  } else if (state == "orphan") {
    matters.add(true, text("Run ", name, " is unknown to this coordinator, and nodes hold it"),
                run.info.reason(), text("skerry run adopt ", name));
  }
  if (state == "waiting")
    matters.add(false, text("Run ", name, " waits: nobody trains it"), run.info.reason(), why);
  if (cli::has_ended(run.info)) return;
  for (const pb::ExpertInfo& expert : run.info.experts()) {
    if (expert.phase() != "failed") continue;
    matters.add(true,
                text(expert.router() ? "The router" : text("Expert ", expert.index()), " of run ",
                     name, " failed"),
                "", why);
  }
}

void add_node(const pb::NodeInfo& node, std::int64_t now, Matters& matters) {
  const std::string name = node.name().empty() ? node.id().substr(0, 12) : node.name();
  if (node.state() == "lost" && now - node.last_seen_unix_ms() < kLostForMs) {
    matters.add(false, text("Node ", name, " is lost"),
                text("last seen ", cli::ago(node.last_seen_unix_ms(), now)),
                text("skerry node show ", name));
  }
  for (const pb::SlotStatus& slot : node.status()) {
    if (slot.phase() == pb::SLOT_FAILED) {
      matters.add(true, text("Card ", slot.slot(), " of node ", name, " failed"),
                  "it gets no work until its daemon restarts", text("skerry node logs ", name));
    }
  }
  if (node.has_leaves_in_seconds()) {
    matters.add(false,
                text("Node ", name, " ends in ", node.leaves_in_seconds(), " s: its work moves"),
                "", "");
  }
}

// The newest of each kind and place; a later event may end the matter.
void add_events(const FleetState& state, Matters& matters) {
  std::set<std::string> seen;
  for (auto event = state.events.rbegin(); event != state.events.rend(); ++event) {
    if (state.unix_ms - event->unix_ms() > kEventForMs) break;
    const std::string& kind = event->kind();
    const std::string of =
        event->expert() < 0 ? event->run() : text(event->run(), " expert ", event->expert());
    const std::string place = of.empty() ? event->node() : of;
    if (kind == "object_mended") seen.insert("object_damaged" + place);
    if (kind == "lease_resumed" || kind == "expert_done") seen.insert("engine_failed" + place);
    if (kind != "object_damaged" && kind != "engine_failed" && kind != "refused") continue;
    if (!seen.insert(kind + place).second) continue;
    const char* words = kind == "object_damaged"  ? "A stored object is damaged: "
                        : kind == "engine_failed" ? "An engine failed: "
                                                  : "A commit was refused: ";
    matters.add(
        kind == "object_damaged",
        text(words, place,
             event->node().empty() || place == event->node() ? "" : text(" on ", event->node())),
        event->reason(),
        kind == "object_damaged" ? "skerry chunk list" : text("skerry node logs ", event->node()));
  }
}

}  // namespace

Json matters_for_a_person(const FleetState& state) {
  Matters matters;
  if (!state.away.empty()) {
    matters.add(true,
                text("The coordinator does not answer since ", utc_time(state.away_since_unix_ms)),
                state.away, "skerry doctor");
  }
  if (state.lacks_room) {
    matters.add(true, "The coordinator's disk is full",
                "what this shows may be lost if it restarts, and changes are refused",
                "free space on its disk");
  }
  for (const auto& [id, run] : state.runs) add_run(run, matters);
  for (const pb::NodeInfo& node : state.nodes) add_node(node, state.unix_ms, matters);
  add_events(state, matters);
  return matters.all();
}

}  // namespace skerry::dashboard
