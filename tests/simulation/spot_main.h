// SPDX-License-Identifier: Apache-2.0
// skerry-simulate --trace: its command line.
#pragma once

#include <span>
#include <string>

namespace skerry::simulation {

inline constexpr char kSpotUsage[] =
    R"(skerry-simulate --trace measures how much training the machines of a spot market yield.

The real coordinator and the real daemons run on a virtual clock.
Each addition of the trace is a fresh daemon, each removal a machine that vanishes.

usage: skerry-simulate --trace FILE [--experts K] [--notice S] [--reload S]
                       [--speeds FILE] [--hours H] [--round S] [--slots N] [--cards N]
                       [--samples FILE] [--all]

the fleet
  --trace FILE    a change a line, sorted by time: TIME_MS,add|remove,NAME
  --notice S      seconds between the notice of a removal and the removal [0: no notice]
  --speeds FILE   a machine a line: NAME,SPEED; other machines have speed 1
  --slots N       cards of each machine, 1 to 8 [1]; two train 1.85 times as fast as one
  --hours H       the trace ends then [at its last change]

the run
  --experts K     1 to 64 [8]
  --round S       seconds of training between two commits [60]
  --cards N       cards_per_expert of the run [1]; 0: as many as gain
  --reload S      seconds from a lease to training on a machine without the files [20, at most 120]
                  Four other times grow in proportion. At 20 they are:
                    6 s to store a snapshot
                    8 s until the coordinator accepts a commit
                    8 s to start an engine whose files are on the disk
                    25 s from a machine's addition to its daemon

the output
  --samples FILE  writes a line a minute: machines, how many could train, how many do
  --all           prints the story of the run first
  One line of JSON:
    goodput           training in the accepted history, as a share of what could be trained
    of_node_seconds   the same training, as a share of the time of all cards
    lost, reload      training that was repeated, and time spent loading, as goodput counts them
    turns             turns that ended, if experts outnumber machines
    moves             experts that moved to a faster machine
    leases_lost       leases that ended before their node gave them back
    trace_hash        equal for equal commands, in every build
  What could be trained is the time of the fastest cards, as many as the experts may have.
  Machines that start or were given notice do not count.

examples:
  skerry-simulate --trace bamboo-p3.csv --experts 16 --notice 30
  skerry-simulate --trace bamboo-p3.csv --reload 90 --notice 120 --samples fleet.csv
)";

// `arguments`: without the program's name.
// RETURNS: the exit status: 0, or 2 if the command or a file is wrong.
int run_spot_main(std::span<const std::string> arguments);

}  // namespace skerry::simulation
