// SPDX-License-Identifier: Apache-2.0
// peer list: what the nodes say of themselves, by their records.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/connect/fleet.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "gossip/router_parts.h"

namespace skerry::cli {
namespace {

struct ListOptions {
  std::string from;
  bool ping = false;
  bool rate = false;
};

struct Held {
  std::string run;
  std::uint32_t expert = 0;
  std::uint64_t step = 0;
  std::string checkpoint;
};

struct Peer {
  gossip::RecordPtr record;
  std::vector<Held> experts;
  std::optional<double> round_trip_ms;
  std::optional<double> bytes_per_second;
};

std::string run_name(const gossip::Table& table, const RunId& run, Now now) {
  const gossip::Entry* entry = table.find_run(run, now);
  return entry == nullptr ? run.str() : entry->record->body.run().name();
}

std::vector<Peer> peers_in(const gossip::Table& table, Now now) {
  std::map<NodeId, Peer> found;
  table.for_each(now, [&](const gossip::Entry& entry) {
    if (entry.record->body.has_node() && !entry.record->body.withdrawn())
      found[entry.record->key.author].record = entry.record;
  });
  table.for_each(now, [&](const gossip::Entry& entry) {
    const gossip::Record& record = *entry.record;
    const auto peer = found.find(record.key.author);
    if (record.key.kind != gossip::Kind::kExpert || record.body.withdrawn() || peer == found.end())
      return;
    peer->second.experts.push_back({run_name(table, record.key.run, now), record.key.expert,
                                    record.body.expert().step(),
                                    record.body.expert().checkpoint().manifest()});
  });
  std::vector<Peer> peers;
  for (auto& [id, peer] : found) peers.push_back(std::move(peer));
  std::ranges::sort(peers, {},
                    [](const Peer& peer) { return gossip::certified(*peer.record).name(); });
  return peers;
}

std::size_t objects_of(const Peer& peer) {
  return peer.record->body.node().holds().size() / gossip::kHoldBytes;
}

Json to_json(const Peer& peer) {
  const pb::NodeRecord& node = peer.record->body.node();
  Json experts = Json::array();
  for (const Held& held : peer.experts) {
    experts.push_back({{"run", printable(held.run)}, {"expert", held.expert}, {"step", held.step}});
  }
  return {{"id", peer.record->key.author.str()},
          {"name", text_or_null(printable(gossip::certified(*peer.record).name()))},
          {"address", text_or_null(printable(gossip::node_address(*peer.record)))},
          {"host_label", text_or_null(printable(node.host_label()))},
          {"slots", node.slots_size()},
          {"objects", objects_of(peer)},
          {"experts", std::move(experts)},
          {"round_trip_ms", peer.round_trip_ms ? Json(*peer.round_trip_ms) : Json()},
          {"bytes_per_second", peer.bytes_per_second ? Json(*peer.bytes_per_second) : Json()}};
}

std::string experts_of(const Peer& peer) {
  std::string words;
  for (const Held& held : peer.experts) {
    words += text(words.empty() ? "" : ", ", held.run, "/", held.expert, " at ", held.step);
  }
  return or_dash(words);
}

void measure_rate(Fleet& fleet, Peer& peer) {
  const auto object = Hash::from_raw(peer.experts.front().checkpoint);
  if (!object) return;
  const Result<double> rate = fleet.bytes_per_second(*peer.record, *object);
  if (rate) peer.bytes_per_second = *rate;
}

Result<int> list(Command& command, const ListOptions& options) {
  ASSIGN_OR_RETURN(const auto fleet, command.around.connect_fleet(command.context, options.from));
  TRY(fleet->learn([] { return false; }));
  std::vector<Peer> peers = peers_in(fleet->table(), fleet->now());
  for (Peer& peer : peers) {
    const std::string& url = peer.record->body.node().address();
    if (url.empty()) continue;
    if (options.ping) {
      const auto took = command.around.reach(url);
      if (took) peer.round_trip_ms = std::chrono::duration<double, std::milli>(*took).count();
    }
    if (options.rate && !peer.experts.empty()) measure_rate(*fleet, peer);
  }
  if (command.json()) {
    Json items = Json::array();
    for (const Peer& peer : peers) items.push_back(to_json(peer));
    print_items(command.out(), std::move(items));
    return kExitOk;
  }
  std::vector<std::string> headings = {"NAME", "HOST", "OBJECTS", "EXPERTS"};
  if (options.ping) headings.emplace_back("ROUND TRIP");
  if (options.rate) headings.emplace_back("RATE");
  headings.emplace_back("ADDRESS");
  Table table(std::move(headings));
  for (const Peer& peer : peers) {
    std::vector<Cell> row = {gossip::certified(*peer.record).name(),
                             or_dash(peer.record->body.node().host_label()), text(objects_of(peer)),
                             experts_of(peer)};
    if (options.ping) {
      row.emplace_back(peer.round_trip_ms ? text(fixed(*peer.round_trip_ms, 1), " ms")
                                          : std::string("-"));
    }
    if (options.rate) {
      row.emplace_back(peer.bytes_per_second
                           ? human_bytes(static_cast<std::uint64_t>(*peer.bytes_per_second)) + "/s"
                           : std::string("-"));
    }
    const std::string address = gossip::node_address(*peer.record);
    row.emplace_back(address.empty() ? "only dials out" : address);
    table.add(std::move(row));
  }
  if (table.empty()) {
    command.tell("no node has said anything yet");
  } else {
    table.print(command.out(), command.colour());
  }
  return kExitOk;
}

}  // namespace

void add_peer_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand(
      "peer", "The nodes as they see each other, with or without a coordinator");
  group->require_subcommand(1);
  CLI::App* added = group->add_subcommand(
      "list",
      "Lists the nodes, what each holds, and the address that --from takes; takes a few seconds");
  auto options = std::make_shared<ListOptions>();
  added
      ->add_option("--from", options->from,
                   "ask this node, not the coordinator: HOST:PORT#KEY, or the name of one that was "
                   "listed before")
      ->type_name("NODE");
  added->add_flag("--ping", options->ping, "also how long a connection to each takes from here");
  added->add_flag(
      "--rate", options->rate,
      "also how fast each that keeps a checkpoint sends to here: two seconds of it, one node "
      "after the other");
  added->footer(
      "Example:\n  skerry peer list\n  skerry peer list --ping --rate\n  skerry peer list --from "
      "192.0.2.7:41234#3f0c…   # while the "
      "coordinator is "
      "gone\nWhat was learnt is kept beside the context, so that nodes are known by name later.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return list(command, *options); };
  });
}

}  // namespace skerry::cli
