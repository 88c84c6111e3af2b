// SPDX-License-Identifier: Apache-2.0
// What all gossip of a simulation shares.
#pragma once

#include <string>

#include "gossip/gossip.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/gossip_rules.h"
#include "tests/simulation/peer_mesh.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

struct GossipGround {
  explicit GossipGround(World& world)
      : mesh(world.timeline, world.trace, world.network, world.seed), rules(world) {}
  PeerMesh mesh;
  GossipRules rules;
  gossip::Config pace = simulated_pace();

  static gossip::Config simulated_pace();
};

inline constexpr char kCoordinatorAddress[] = "coordinator";
inline constexpr std::size_t kCoordinatorConnections = 1000;
// What a process has to say is put together that often. The programs do it each
// second, which would cost too much here.
inline constexpr Duration kSaysEvery = seconds(3);

// Of hosts in a simulation in which nobody gossips: nothing is said.
gossip::Config silent_pace();
gossip::SignatureChecks simulated_checks();
// A line for each record of a serialised blob message that is about to be
// refused. `name`: of the process that holds `table`.
void tell_refusals(World& world, const std::string& name, const gossip::Table& table, Now now,
                   std::string_view blob_message);

}  // namespace skerry::simulation
