// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulate.h"

#include <algorithm>

#include "base/text.h"
#include "tests/simulation/aftermath.h"
#include "tests/simulation/durable.h"
#include "tests/simulation/gossip_aftermath.h"
#include "tests/simulation/nemesis.h"

namespace skerry::simulation {
namespace {

constexpr Duration kRageLeast = seconds(265);
constexpr Duration kRageMost = seconds(300);
constexpr Duration kTended = seconds(5);
constexpr Duration kSettled = seconds(40);
// Until the run is done once everything has healed. It is long: a node gets an
// expert that it gave up only after Config::avoid, and a turn may have to end
// first.
constexpr Duration kRecovery = seconds(3600);
constexpr double kEndsAlone =
    0.5;  // of seeds that gossip: the coordinator is killed for good in the end

bool is_revoked(Cluster& cluster, const DaemonMachine& daemon) {
  const auto node = read<stored::Node>(cluster.coordinator().durable(),
                                       coordinator::kNodePrefix + daemon.id().str());
  return node && node->revoked();
}

// Acts as the person who runs the fleet: starts a daemon that ended again. A
// daemon that refuses to run, or whose key was revoked, joins anew.
void tend(Cluster& cluster) {
  for (std::size_t i = 0; i < cluster.daemons(); ++i) {
    DaemonMachine& daemon = cluster.daemon(i);
    const bool is_out = is_revoked(cluster, daemon);
    if (is_out) daemon.kill(DaemonMachine::Death::kKilled);
    if (daemon.is_up()) continue;
    if (daemon.has_failed() || is_out) daemon.wipe_disk();
    daemon.clear_failure();
    daemon.start(cluster.token());
  }
  cluster.world().timeline.after(kTended, [&cluster] { tend(cluster); });
}

void check_end(Cluster& cluster, bool finished) {
  if (!cluster.is_sound()) return;
  if (!finished) {
    cluster.world().violated(
        "L5", "everything works and the run does not end: " + where_it_stands(cluster));
  }
  if (cluster.run_state() == "failed" &&
      cluster.run_reason().find("used up its") == std::string::npos)
    cluster.world().violated("L5", "the run failed: " + cluster.run_reason());
}

}  // namespace

Report simulate(const Scenario& scenario) {
  ClusterOptions options = draw_options(scenario.seed);
  options.keep = scenario.keep;
  options.tells_records = scenario.keep == Trace::Keep::kAll;
  Cluster cluster(options);
  Nemesis nemesis(cluster, scenario.only);
  Dice dice(scenario.seed, "simulate");
  cluster.start();
  cluster.start_daemons();
  const Duration faults_end = dice.duration(kRageLeast, kRageMost);
  cluster.run_for(seconds(4));
  nemesis.rage(faults_end);
  cluster.run_for(faults_end - cluster.world().timeline.now());
  Aftermath aftermath(cluster);
  aftermath.before_healing();
  nemesis.heal();
  if (cluster.is_sound()) tend(cluster);
  aftermath.begin();
  std::optional<GossipAftermath> gossip;
  if (options.gossips) gossip.emplace(cluster).begin();
  // The client may still say what was true before the last fault: the run is
  // done when it says so later on.
  const auto is_over = [&] {
    return cluster.world().timeline.now() > aftermath.healed() + kSettled && cluster.is_done() &&
           cluster.admin().is_idle();
  };
  check_end(cluster, cluster.run_until(is_over, kRecovery));
  if (gossip && dice.chance(kEndsAlone) && cluster.is_sound()) {
    aftermath.end();
    gossip->without_coordinator();
  }
  Report report;
  report.longest_wait = aftermath.longest_wait();
  report.seed = scenario.seed;
  report.violations = cluster.invariants().violations();
  report.virtual_time = cluster.world().timeline.now();
  report.commits = cluster.invariants().commits();
  report.faults = cluster.world().faults;
  report.took_place = nemesis.took_place();
  report.trace_hash = cluster.world().trace.hash();
  report.events = cluster.world().timeline.events();
  report.last_lines.assign(cluster.world().trace.lines().begin(),
                           cluster.world().trace.lines().end());
  return report;
}

}  // namespace skerry::simulation
