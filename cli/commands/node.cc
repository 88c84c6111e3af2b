// SPDX-License-Identifier: Apache-2.0
// node …: the machines of the roster.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "cli/shell/words.h"
#include "cli/view/listing.h"
#include "cli/view/node_view.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::milliseconds kDrainEvery{500};
constexpr std::chrono::milliseconds kLogsEvery{200};
constexpr std::chrono::seconds kLogsWithin{20};

std::string devices_of(const pb::NodeInfo& node) {
  std::vector<std::pair<std::string, int>> counts;
  for (const pb::Slot& slot : node.slots()) {
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& pair) { return pair.first == slot.device(); });
    if (found == counts.end()) {
      counts.emplace_back(slot.device(), 1);
    } else {
      ++found->second;
    }
  }
  std::string out;
  for (const auto& [device, count] : counts) {
    out += text(out.empty() ? "" : ", ", count == 1 ? "" : text(count, " x "), device);
  }
  return or_dash(out);
}

std::string work_of(const pb::NodeInfo& node) {
  std::string out;
  for (const pb::SlotStatus& status : node.status()) {
    if (status.run().empty()) continue;
    out += text(out.empty() ? "" : ", ", run_name(node, status), "/", status.expert(), " ",
                phase_name(status.phase()), " at ", status.step());
  }
  return or_dash(out);
}

std::string price_of(const pb::NodeInfo& node) {
  return node.price() > 0 ? text(fixed(node.price(), 2), "/h") : "-";
}

std::string leaves_in(const pb::NodeInfo& node) {
  return node.has_leaves_in_seconds() ? text(node.leaves_in_seconds(), " s") : "-";
}

Result<int> list_nodes(Command& command) {
  ASSIGN_OR_RETURN(const std::vector<pb::NodeInfo> nodes, all_nodes(command));
  if (command.json()) {
    Json items = Json::array();
    for (const pb::NodeInfo& node : nodes) items.push_back(node_json(node));
    print_items(command.out(), std::move(items));
    return kExitOk;
  }
  const bool any_leaves = std::ranges::any_of(nodes, &pb::NodeInfo::has_leaves_in_seconds);
  std::vector<std::string> headings = {"NAME",    "ID",   "STATE",    "ROLE",
                                       "DEVICES", "WORK", "LAST SEEN"};
  const bool any_price =
      std::ranges::any_of(nodes, [](const pb::NodeInfo& node) { return node.price() > 0; });
  if (any_leaves) headings.emplace_back("LEAVES IN");
  if (any_price) headings.emplace_back("DOLLARS");
  Table table(std::move(headings));
  for (const pb::NodeInfo& node : nodes) {
    std::vector<Cell> row = {or_dash(node.name()),
                             node.id().substr(0, 12),
                             {node.state(), paint_of_state(node.state())},
                             role_name(node.role()),
                             devices_of(node),
                             work_of(node),
                             ago(node.last_seen_unix_ms(), command.around.unix_ms())};
    if (any_leaves) row.emplace_back(leaves_in(node));
    if (any_price) row.emplace_back(price_of(node));
    table.add(std::move(row));
  }
  table.print(command.out(), command.colour());
  if (nodes.empty())
    command.tell("no node yet: `skerry token create` prints the command that joins one");
  return kExitOk;
}

Result<pb::NodeInfo> one_node(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::AdminReply reply,
                   command.ask(named(&pb::AdminRequest::mutable_node_show, name)));
  if (reply.nodes().nodes_size() != 1) return unexpected_reply();
  return reply.nodes().nodes(0);
}

Result<int> show_node(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::NodeInfo node, one_node(command, name));
  if (command.json()) {
    print_object(command.out(), node_json(node));
    return kExitOk;
  }
  std::ostream& out = command.out();
  out << printable(or_dash(node.name())) << "  " << node.id() << "\n"
      << "state       " << painted(node.state(), paint_of_state(node.state()), command.colour())
      << '\n'
      << "role        " << role_name(node.role()) << '\n'
      << "joined      " << (node.joined_unix_ms() == 0 ? "-" : utc_time(node.joined_unix_ms()))
      << '\n'
      << "last seen   " << ago(node.last_seen_unix_ms(), command.around.unix_ms()) << '\n'
      << "leaves in   " << leaves_in(node) << '\n'
      << "price       " << price_of(node) << '\n'
      << "address     " << printable(or_dash(node.address())) << '\n'
      << "software    " << printable(or_dash(node.software())) << "\n\n";
  Table table({"SLOT", "DEVICE", "MEMORY", "PHASE", "EXPERT", "STEP", "LOSS", "SAMPLES/S"});
  for (const pb::Slot& slot : node.slots()) {
    const pb::SlotStatus* status = status_of(node, slot.index());
    const bool busy = status != nullptr && !status->run().empty();
    table.add({text(slot.index()), slot.device(), human_bytes(slot.memory_bytes()),
               status == nullptr ? "-" : phase_name(status->phase()),
               busy ? text(run_name(node, *status), "/", status->expert()) : "-",
               busy ? text(status->step()) : "-",
               busy && status->step() > 0 ? fixed(status->loss(), 4) : "-",
               busy ? fixed(status->samples_per_second(), 1) : "-"});
  }
  table.print(out, command.colour());
  return kExitOk;
}

Result<int> drain_node(Command& command, const std::string& name) {
  command.around.set_parting_words(text("the drain of ", name, " goes on: `skerry node show ", name,
                                        "` shows it, `skerry node uncordon ", name,
                                        "` takes it back\n"));
  TRY(command.ask(named(&pb::AdminRequest::mutable_node_drain, name)));
  command.tell(text("draining ", name,
                    ": it finishes or drops its round, commits and gives its leases back"));
  std::string shown;
  Patience patience(command);
  patience.answered();
  while (true) {
    const Result<pb::NodeInfo> answer = one_node(command, name);
    if (!answer.has_value()) {
      if (!patience.bears(answer.error())) return answer.error();
      command.around.wait(kDrainEvery);
      continue;
    }
    patience.answered();
    const pb::NodeInfo& node = *answer;
    const bool busy = first_busy(node) != nullptr;
    if (node.state() == "left") break;  // it drained, and its program has ended
    if (node.state() == "lost" || node.state() == "revoked") {
      return fail(ErrorCode::kUnavailable, text(name, " was ", node.state(),
                                                " while it drained: its experts start "
                                                "again elsewhere from their last commits"));
    }
    if (node.state() != "draining" || !busy) break;
    if (work_of(node) != shown) command.tell(text("  ", shown = work_of(node)));
    command.around.wait(kDrainEvery);
  }
  command.around.set_parting_words("");
  command.did("node", name,
              text("drained; it takes no work until `skerry node uncordon ", name, "`"));
  return kExitOk;
}

Result<int> show_logs(Command& command, const std::string& name) {
  const auto until = command.around.uptime() + kLogsWithin;
  while (true) {
    ASSIGN_OR_RETURN(const pb::AdminReply reply,
                     command.ask(named(&pb::AdminRequest::mutable_node_logs, name)));
    if (!reply.has_logs()) return unexpected_reply();
    if (reply.logs().ready()) {
      if (command.json()) {
        Json lines = Json::array();
        for (const std::string& line : reply.logs().lines()) lines.push_back(printable(line));
        print_object(command.out(), {{"node", name}, {"lines", std::move(lines)}});
      } else {
        for (const std::string& line : reply.logs().lines())
          command.out() << printable(line) << '\n';
      }
      return kExitOk;
    }
    if (command.around.uptime() > until) {
      return fail(ErrorCode::kTimeout,
                  text(name, " did not send its log within ", human_duration(kLogsWithin),
                       ": is it connected? `skerry node show ", name, "`"));
    }
    command.around.wait(kLogsEvery);
  }
}

using Action = std::function<Result<int>(const std::string& name)>;

void add_named(CLI::App& group, Command& command, const std::string& verb,
               const std::string& meaning, const std::string& example, Action action) {
  CLI::App* added = group.add_subcommand(verb, meaning);
  auto name = std::make_shared<std::string>();
  added->add_option("NODE", *name, "its unique name or id")->required()->type_name("");
  added->footer("Example:\n  " + example);
  added->callback([&command, name, action = std::move(action)] {
    command.chosen = [name, action] { return action(*name); };
  });
}

}  // namespace

void add_node_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("node", "The machines that train");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("list", "Lists the nodes, their states and their work");
  list->footer("Example:\n  skerry node list -o json");
  list->callback([&command] { command.chosen = [&command] { return list_nodes(command); }; });

  add_named(*group, command, "show", "Shows one node", "skerry node show gpu-1",
            [&command](const std::string& name) { return show_node(command, name); });
  add_named(*group, command, "cordon", "Gives it no new work; what it has goes on",
            "skerry node cordon gpu-1", [&command](const std::string& name) {
              return command.carry_out("node", &pb::AdminRequest::mutable_node_cordon, name,
                                       "cordoned, gets no new work");
            });
  add_named(*group, command, "uncordon", "Lets it have work again, after cordon or drain",
            "skerry node uncordon gpu-1", [&command](const std::string& name) {
              return command.carry_out("node", &pb::AdminRequest::mutable_node_uncordon, name,
                                       "may have work again");
            });
  add_named(*group, command, "drain",
            "Has it commit and give its work back; waits until it has (an interrupt does not "
            "cancel the drain)",
            "skerry node drain gpu-1",
            [&command](const std::string& name) { return drain_node(command, name); });
  add_named(
      *group, command, "evict", "Takes its work away at once; steps since its last commit are lost",
      "skerry node evict gpu-1 --yes", [&command](const std::string& name) -> Result<int> {
        TRY(command.confirm(
            text("Take the work of ", name, " away, with the steps since its last commit?")));
        return command.carry_out("node", &pb::AdminRequest::mutable_node_evict, name, "evicted");
      });
  add_named(
      *group, command, "revoke", "Takes it off the roster for good; its key is refused from now on",
      "skerry node revoke gpu-1 --yes", [&command](const std::string& name) -> Result<int> {
        TRY(command.confirm(
            text("Refuse the key of ", name, " from now on? It can only join again as new.")));
        return command.carry_out("node", &pb::AdminRequest::mutable_node_revoke, name, "revoked");
      });
  add_named(*group, command, "logs", "Prints the last lines of its log", "skerry node logs gpu-1",
            [&command](const std::string& name) { return show_logs(command, name); });
}

}  // namespace skerry::cli
