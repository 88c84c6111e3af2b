// SPDX-License-Identifier: Apache-2.0
// A small cluster of the product's real hosts on one virtual clock:
// coordinator::Host and daemon::Host, their exchanges and object stores, over a
// network, disks and workers that fail. It finds what is wrong in the hosts;
// simulate.h finds what is wrong in the cores, on a larger scale.
//
// Rules, by the ids of docs/reliability.md where they have one:
//   S4       what the coordinator has acknowledged survives every crash, whole
//   S6       a core hears that an object is stored only where it is, whole
//   S7       a core hears that a state is durable only where it is; a process ends soon after its disk has failed
//   S16      a process accepts what an earlier one left on its disk
//   weights  a checkpoint holds the weights that an unbroken run has at its step
//   engine   a slot has one engine at a time
//   once     a core hears once of the end of an engine, and of a state that became durable
//   spin     a host that says when it is due next is not due again at once
//   L5       once everything works, the run comes to its end
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/simulate.h"

namespace skerry::simulation {

// One seed: a minute and a half of faults, then everything heals and the run
// must end.
Report simulate_hosts(std::uint64_t seed);

}  // namespace skerry::simulation
