// SPDX-License-Identifier: Apache-2.0
#include "dashboard/metrics.h"

#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <utility>

#include "base/text.h"
#include "cli/run/follow_run.h"
#include "cli/shell/printable.h"
#include "dashboard/attention.h"

namespace skerry::dashboard {
namespace {

using Labels = std::initializer_list<std::pair<const char*, std::string>>;

class Page {
 public:
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += text("# HELP ", name, ' ', help, "\n# TYPE ", name, ' ', type, '\n');
  }
  void add(Labels labels, double value) {
    out_ += name_;
    char before = '{';
    for (const auto& [label, words] : labels) {
      out_ += text(std::exchange(before, ','), label, "=\"", escaped(words), '"');
    }
    if (labels.size() > 0) out_ += '}';
    char number[40];
    std::snprintf(number, sizeof number, " %.10g\n", value);
    out_ += std::isfinite(value) ? number : " NaN\n";
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string escaped(const std::string& words) {
    std::string out;
    for (const char c : cli::printable(words)) {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
    return out;
  }

  std::string out_;
  const char* name_ = "";
};

void add_nodes(const FleetState& state, Page& page) {
  std::map<std::string, int> counts;
  // Each state has a series from the start, so that an alert sees the first.
  for (const char* each : {"ready", "training", "cordoned", "draining", "left", "lost", "revoked"})
    counts[each] = 0;
  for (const pb::NodeInfo& node : state.nodes) ++counts[node.state()];
  page.begin("skerry_nodes", "gauge", "Nodes of the fleet by state.");
  for (const auto& [name, count] : counts) page.add({{"state", name}}, count);
}

using OfExpert = std::function<void(const RunState&, const pb::ExpertInfo&, Labels)>;

void each_expert(const FleetState& state, const OfExpert& visit) {
  for (const auto& [id, run] : state.runs) {
    if (cli::has_ended(run.info)) continue;
    for (const pb::ExpertInfo& expert : run.info.experts()) {
      if (expert.removed()) continue;
      visit(run, expert,
            {{"run", run.info.name()},
             {"expert", expert.router() ? std::string("router") : text(expert.index())}});
    }
  }
}

void add_experts(const FleetState& state, Page& page) {
  page.begin("skerry_expert_step", "gauge", "Step of the expert's last commit.");
  each_expert(state, [&](const RunState&, const pb::ExpertInfo& expert, Labels labels) {
    page.add(labels, static_cast<double>(expert.step()));
  });
  const auto of_commit = [&](const char* name, const char* help, auto value) {
    page.begin(name, "gauge", help);
    each_expert(state, [&](const RunState&, const pb::ExpertInfo& expert, Labels labels) {
      if (!expert.checkpoint().empty()) page.add(labels, static_cast<double>(value(expert)));
    });
  };
  of_commit("skerry_expert_loss", "Mean loss over the span of the last commit.",
            [](const pb::ExpertInfo& expert) { return expert.loss(); });
  of_commit("skerry_expert_gradient_norm", "Mean gradient norm over the span of the last commit.",
            [](const pb::ExpertInfo& expert) { return expert.gradient_norm(); });
  of_commit("skerry_expert_checkpoint_age_seconds", "Time since the expert's last commit.",
            [&](const pb::ExpertInfo& expert) {
              return std::max(
                  0.0, static_cast<double>(state.unix_ms - expert.committed_unix_ms()) / 1000);
            });
  of_commit("skerry_expert_copies",
            "Places that hold the last checkpoint, besides the node that committed it.",
            [](const pb::ExpertInfo& expert) { return expert.copies(); });
  page.begin("skerry_expert_commits_total", "counter", "Commits of the expert.");
  each_expert(state, [&](const RunState& run, const pb::ExpertInfo& expert, Labels labels) {
    const std::uint64_t commits = run.track.last(expert.index());
    if (commits > 0) page.add(labels, static_cast<double>(commits));
  });
}

void add_runs(const FleetState& state, Page& page) {
  page.begin("skerry_run_goodput_ratio", "gauge", "Accepted steps out of all that were trained.");
  for (const auto& [id, run] : state.runs) {
    if (run.info.has_goodput()) page.add({{"run", run.info.name()}}, run.info.goodput());
  }
  page.begin("skerry_run_cost_usd_total", "counter", "Dollars spent on the run's leases.");
  for (const auto& [id, run] : state.runs) page.add({{"run", run.info.name()}}, run.info.dollars());
  page.begin("skerry_run_state", "gauge", "1 for the state that the run is in.");
  for (const auto& [id, run] : state.runs)
    page.add({{"run", run.info.name()}, {"state", run.info.state()}}, 1);
}

void add_coordinator(const FleetState& state, Page& page) {
  page.begin("skerry_coordinator_up", "gauge", "Whether the coordinator answered last.");
  page.add({}, state.away.empty() ? 1 : 0);
  page.begin("skerry_coordinator_disk_full", "gauge", "Whether the coordinator's disk is full.");
  page.add({}, state.lacks_room ? 1 : 0);
  int bad = 0, warning = 0;
  for (const cli::Json& matter : matters_for_a_person(state))
    ++(matter["level"] == "bad" ? bad : warning);
  page.begin("skerry_matters", "gauge", "Things that need a person, as the dashboard lists them.");
  page.add({{"level", "bad"}}, bad);
  page.add({{"level", "warning"}}, warning);
}

}  // namespace

std::string metrics_text(const FleetState& state) {
  Page page;
  add_coordinator(state, page);
  add_nodes(state, page);
  add_runs(state, page);
  add_experts(state, page);
  return page.take();
}

}  // namespace skerry::dashboard
