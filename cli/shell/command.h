// SPDX-License-Identifier: Apache-2.0
// The context of a command: the global options, the connection and the output.
// The connection opens at its first use. The parser chooses a command, which
// runs after the parser.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/connect/admin_client.h"
#include "cli/shell/output.h"
#include "cli/shell/surroundings.h"

namespace CLI {
class App;
}

namespace skerry::cli {

class Command {
 public:
  explicit Command(Surroundings& surroundings) : around(surroundings) {}

  Result<AdminClient*> client();
  Result<pb::AdminReply> ask(const pb::AdminRequest& request);

  bool json() const { return format_name == "json"; }
  bool colour() const { return colour_wanted(around); }
  std::ostream& out() { return around.out(); }
  void tell(const std::string& words);  // prints a line to standard error
  // What a command did to one thing, such as a "run": a line for people, and an
  // object with `done` if JSON was asked for.
  void did(const std::string& kind, const std::string& name, const std::string& done);

  // Asks for what takes only a name, such as mutable_run_pause, and says what
  // was done.
  Result<int> carry_out(const std::string& kind, pb::Named* (pb::AdminRequest::*part)(),
                        const std::string& name, const std::string& done);

  // Asks for confirmation on a terminal, unless --yes was given. Scripts are
  // not asked.
  // ON FAILURE: kConflict if the answer is no, or if standard error is not a
  // terminal and would not show the question.
  Result<void> confirm(const std::string& question);

  Surroundings& around;
  std::string context;
  std::string format_name = "table";
  bool yes = false;
  std::function<Result<int>()> chosen;

 private:
  std::unique_ptr<AdminClient> client_;
  bool warned_ = false;  // that the coordinator's disk is full
};

// RETURNS: a request with one name in it, as in
// named(&pb::AdminRequest::mutable_node_show, "host-3").
pb::AdminRequest named(pb::Named* (pb::AdminRequest::*part)(), const std::string& name);

// RETURNS: kCorrupt, for a reply of another type than the request's.
Error unexpected_reply();

// Fetches every page of a list. `after` is the last name of the page before.
template <class Item>
Result<std::vector<Item>> list_all(
    Command& command, pb::ListRequest* (pb::AdminRequest::*part)(),
    const std::function<bool(const pb::AdminReply&, std::vector<Item>&, std::string& next)>& take) {
  std::vector<Item> items;
  std::string after;
  while (true) {
    pb::AdminRequest request;
    (request.*part)()->set_after(after);
    ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
    std::string next;
    if (!take(reply, items, next)) return unexpected_reply();
    if (next.empty() || next == after) return items;
    after = next;
  }
}

// Each function adds its commands to the root.
void add_token_commands(CLI::App& root, Command& command);
void add_login_command(CLI::App& root, Command& command);
void add_node_commands(CLI::App& root, Command& command);
void add_peer_commands(CLI::App& root, Command& command);
void add_dataset_commands(CLI::App& root, Command& command);
void add_run_commands(CLI::App& root, Command& command);
void add_preview_command(CLI::App& run, Command& command);  // to the `run` commands
void add_dashboard_command(CLI::App& root, Command& command);
void add_event_commands(CLI::App& root, Command& command);
void add_ensemble_commands(CLI::App& root, Command& command);
void add_sample_command(CLI::App& root, Command& command);
void add_chunk_commands(CLI::App& root, Command& command);
void add_doctor_commands(CLI::App& root, Command& command);

}  // namespace skerry::cli
