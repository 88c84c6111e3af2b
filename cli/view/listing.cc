// SPDX-License-Identifier: Apache-2.0
#include "cli/view/listing.h"

#include <algorithm>

namespace skerry::cli {

Result<std::vector<pb::NodeInfo>> all_nodes(Command& command) {
  return list_all<pb::NodeInfo>(
      command, &pb::AdminRequest::mutable_node_list,
      [](const pb::AdminReply& reply, std::vector<pb::NodeInfo>& items, std::string& next) {
        if (!reply.has_nodes()) return false;
        items.insert(items.end(), reply.nodes().nodes().begin(), reply.nodes().nodes().end());
        next = reply.nodes().next();
        return true;
      });
}

Result<std::vector<pb::RunInfo>> all_runs(Command& command) {
  return list_all<pb::RunInfo>(
      command, &pb::AdminRequest::mutable_run_list,
      [](const pb::AdminReply& reply, std::vector<pb::RunInfo>& items, std::string& next) {
        if (!reply.has_runs()) return false;
        items.insert(items.end(), reply.runs().runs().begin(), reply.runs().runs().end());
        next = reply.runs().next();
        return true;
      });
}

Result<std::vector<pb::Event>> next_events(Command& command, const std::string& run,
                                           std::uint64_t& after) {
  std::vector<pb::Event> events;
  while (true) {
    pb::AdminRequest request;
    request.mutable_event_list()->set_after(after);
    request.mutable_event_list()->set_run(run);
    Result<pb::AdminReply> answer = command.ask(request);
    if (!answer.has_value() && !events.empty()) return events;  // what has come is not lost
    ASSIGN_OR_RETURN(const pb::AdminReply reply, std::move(answer));
    if (!reply.has_events()) return unexpected_reply();
    events.insert(events.end(), reply.events().events().begin(), reply.events().events().end());
    const std::uint64_t before = after;
    if (!events.empty()) after = std::max(after, events.back().number());
    after = std::max(after, reply.events().next());
    if (after == before || reply.events().events().empty()) return events;
  }
}

}  // namespace skerry::cli
