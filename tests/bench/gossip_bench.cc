// SPDX-License-Identifier: Apache-2.0
// gossip_bench [NODES] [SEED]: a warm fleet of simulated nodes, half of them
// behind NAT, 30 % of the messages lost, no coordinator. First what an idle
// node sends and receives, then how many rounds 100 fresh records need to be
// everywhere. Prints; the last line is JSON.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/text.h"
#include "gossip/testing/testing.h"
#include "tests/simulation/gossip_fleet.h"

namespace skerry::simulation {
namespace {

constexpr std::size_t kFresh = 100;
constexpr int kSettleRounds = 20;
constexpr int kIdleRounds = 32;
constexpr int kMostRounds = 40;
constexpr int kFreshChange = -1;

pb::RecordBody fact_of(const Member& member, int change = 0) {
  const std::string address = member.only_dials ? ""
                                                : text("tcp://10.0.", member.number / 256, '.',
                                                       member.number % 256, ":7610");
  return gossip::node_fact(address, {text("checkpoint ", member.number % 8, '/', change),
                                     text("shard ", member.number % 8)});
}

// An idle node signs anew after a quarter of its record's lifetime, or up to a
// quarter of that earlier.
Duration between_renewals(const gossip::Config& config) { return config.node_lifetime / 4 * 7 / 8; }

// Everyone's node record, none so old that its author signs it anew by itself:
// idle() decides who does.
gossip::Table warm_table(Fleet& fleet, const gossip::Config& config, Dice& dice) {
  gossip::Table table = fleet.empty_table();
  for (std::size_t i = 1; i < fleet.size(); ++i) {
    Member& member = fleet.member(i);
    const Duration age = dice.duration(0s, config.node_lifetime / 4 * 5 / 8);
    gossip::Author author(i);
    const pb::SignedRecord wire =
        author.sign(fact_of(member), 1, gossip::at(-age), config.node_lifetime, 1);
    table.put(gossip::genuine(*member.verifier, wire), age, fleet.now(member));
  }
  return table;
}

// Lets rounds pass, in which as many random nodes sign anew as in a fleet whose
// starts are long past.
void idle(Fleet& fleet, const gossip::Config& config, int rounds, int& changes, Dice& dice) {
  const std::size_t nodes = fleet.size() - 1;
  const double each_round = static_cast<double>(nodes) * static_cast<double>(config.round.count()) /
                            static_cast<double>(between_renewals(config).count());
  double due = 0;
  for (int i = 0; i < rounds; ++i) {
    for (due += each_round; due >= 1; due -= 1) {
      Member& member = fleet.member(dice.between(1, nodes));
      fleet.say(member, fact_of(member, ++changes));
    }
    fleet.run(fleet.time() + config.round);
  }
}

double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

nlohmann::json measure(std::size_t nodes, std::uint64_t seed) {
  FleetConfig config{.seed = seed, .nodes = nodes, .coordinator = false, .share_verifier = true};
  Fleet fleet(config);
  Dice dice(seed, "bench");
  fleet.faults.loss = 0.3;
  const gossip::Table warm = warm_table(fleet, config.gossip, dice);
  for (std::size_t i = 1; i < fleet.size(); ++i) {
    fleet.start(fleet.member(i), warm);
    fleet.say(fleet.member(i), fact_of(fleet.member(i)));
  }
  std::cout << nodes << " nodes hold " << warm.size() << " records each" << std::endl;
  const Duration round = config.gossip.round;
  int changes = 0;
  idle(fleet, config.gossip, kSettleRounds, changes, dice);

  std::size_t links = 0;
  for (std::size_t i = 1; i < fleet.size(); ++i) {
    fleet.member(i).sent_bytes = fleet.member(i).received_bytes = 0;
    links += fleet.member(i).links.size();
  }
  const Duration begin = fleet.time();
  idle(fleet, config.gossip, kIdleRounds, changes, dice);
  const double seconds = std::chrono::duration<double>(fleet.time() - begin).count();
  std::vector<double> rates;
  double sent = 0;
  for (std::size_t i = 1; i < fleet.size(); ++i) {
    const Member& member = fleet.member(i);
    rates.push_back(static_cast<double>(member.sent_bytes + member.received_bytes) / seconds);
    sent += static_cast<double>(member.sent_bytes) / seconds;
  }
  double mean = 0;
  for (const double rate : rates) mean += rate / static_cast<double>(rates.size());
  std::cout << "idle: " << mean << " bytes a second and node, both ways" << std::endl;

  std::unordered_set<NodeId> authors;
  while (authors.size() < std::min(kFresh, nodes)) {
    Member& member = fleet.member(dice.between(1, nodes));
    if (authors.insert(member.id).second) fleet.say(member, fact_of(member, kFreshChange));
  }
  std::size_t arrived = 0;
  fleet.on_effects = [&](Member&, const gossip::Effects& effects) {
    for (const gossip::RecordPtr& record : effects.news) {
      const pb::RecordBody& body = record->body;
      if (!authors.contains(record->key.author)) continue;
      const Member& author = *fleet.find(record->key.author);
      if (body.node().holds() == fact_of(author, kFreshChange).node().holds()) ++arrived;
    }
  };
  const std::size_t all = authors.size() * nodes;
  const Duration said = fleet.time();
  std::optional<Duration> most, every;
  for (int i = 1; i <= kMostRounds && !every; ++i) {
    fleet.run(said + i * round, [&] {
      if (!most && static_cast<double>(arrived) >= 0.9999 * static_cast<double>(all))
        most = fleet.time();
      if (!every && arrived >= all) every = fleet.time();
      return every.has_value();
    });
    std::cout << "round " << i << ": "
              << 100.0 * static_cast<double>(arrived) / static_cast<double>(all) << " %"
              << std::endl;
  }
  const auto rounds = [&](std::optional<Duration> when) {
    return when ? std::ceil(std::chrono::duration<double>(*when - said) / round) : -1.0;
  };
  return {{"nodes", nodes},
          {"seed", seed},
          {"fresh_records", authors.size()},
          {"round_seconds", std::chrono::duration<double>(round).count()},
          {"connections_per_node", static_cast<double>(links) / static_cast<double>(nodes)},
          {"rounds_to_9999", rounds(most)},
          {"rounds_to_all", rounds(every)},
          {"idle_bytes_per_second", std::round(mean)},
          {"idle_sent_bytes_per_second", std::round(sent / static_cast<double>(nodes))},
          {"idle_bytes_per_second_p99", std::round(percentile(rates, 0.99))},
          {"signatures_checked", fleet.member(1).verifier->signatures_checked()}};
}

}  // namespace
}  // namespace skerry::simulation

int main(int argc, char** argv) {
  const std::size_t nodes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 10'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (nodes < 2) {
    std::cerr << "usage: gossip_bench [NODES] [SEED]\n";
    return 2;
  }
  std::cout << skerry::simulation::measure(nodes, seed).dump() << '\n';
}
