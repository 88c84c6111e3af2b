// SPDX-License-Identifier: Apache-2.0
// A spot market's trace against the product's hosts on the virtual clock. Each
// addition is a fresh daemon; each removal is a machine that vanishes, with a
// notice before it where asked. Engines, disks and transfers take the times of
// SpotCosts; all else is what the cores do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tests/simulation/spot_trace.h"
#include "tests/simulation/trace.h"

namespace skerry::simulation {

// What is paid, as our Python model of the same trace has it.
struct SpotCosts {
  Duration store = std::chrono::seconds(6);  // a snapshot, on the node's disk
  // The coordinator's answer to a commit: the checkpoint goes there, and from
  // there to the node that holds the copy.
  Duration to_coordinator = std::chrono::milliseconds(4300);
  Duration to_node = std::chrono::milliseconds(3500);
  // An expert's shards are two files. With the checkpoint, and the start of the
  // engine, they are the 20 s of a cold start.
  Duration shard = std::chrono::milliseconds(4250);
  Duration start = std::chrono::seconds(8);   // of an engine whose files are on the disk
  Duration joins = std::chrono::seconds(25);  // a machine's start before its daemon's
  Duration cold() const { return to_node + 2 * shard + start; }
  // The same ones, so that cold() is about this long.
  SpotCosts scaled(double cold_seconds) const;
};

struct SpotOptions {
  SpotTrace trace;
  std::uint32_t experts = 8;
  std::uint32_t copies = 2;
  std::uint32_t slots = 1;             // cards of each machine
  std::uint32_t cards_per_expert = 1;  // as a run file has it
  double round_seconds = 60;
  Duration notice{};  // before each removal; 0: none
  SpotCosts costs;
  std::map<std::string, double> speeds;  // of machines; 1: those that are not named
  Trace::Keep keep = Trace::Keep::kNothing;
};

// The fleet at a moment.
struct SpotSample {
  Duration at{};
  std::size_t machines = 0;
  double could = 0;  // speed of the machines that could train
  std::size_t training = 0;
};

struct SpotReport {
  // Of one card at speed 1. `could`: of the fastest cards, as many as experts
  // may have, but those of machines that start or were told their end.
  double node_seconds = 0, could_seconds = 0;
  double useful_seconds = 0;  // of steps that end in the accepted history
  double lost_seconds = 0;    // of steps that do not
  double reload_seconds = 0;  // from a lease to the first step
  std::uint64_t turns = 0, moves = 0, leases_lost = 0;
  std::uint64_t commits = 0;
  double answer_seconds = 0;  // a commit's mean time from its sending to its acceptance
  std::uint64_t trace_hash = 0;
  std::vector<SpotSample> samples;  // one a minute
};

// RETURNS: the same for the same options, in every build. `tells` is given each
// line of the story; none: nobody reads it.
SpotReport run_spot(const SpotOptions& options,
                    const std::function<void(const std::string&)>& tells = {});

// One line of JSON, without its end.
std::string json_of(const SpotReport& report);

}  // namespace skerry::simulation
