// SPDX-License-Identifier: Apache-2.0
#include "cli/run/follow_run.h"

#include "base/text.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::milliseconds kAskEvery{1000};

}  // namespace

Result<pb::RunInfo> one_run(Command& command, const pb::AdminRequest& request) {
  ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
  if (reply.runs().runs_size() != 1) return unexpected_reply();
  return reply.runs().runs(0);
}

bool has_ended(const pb::RunInfo& run) {
  return run.state() == "done" || run.state() == "failed" || run.state() == "stopped";
}

Result<int> follow_run(Command& command, const std::string& name,
                       const std::function<Result<void>(const pb::RunInfo&)>& seen) {
  Patience patience(command);
  const pb::AdminRequest request = named(&pb::AdminRequest::mutable_run_show, name);
  while (true) {
    const Result<pb::RunInfo> run = one_run(command, request);
    if (run.has_value()) {
      patience.answered();
      TRY(seen(*run));
      if (run->state() == "done") return kExitOk;
      if (has_ended(*run)) {
        command.tell(
            text(name, " ", run->state(), run->reason().empty() ? "" : ": ", run->reason()));
        return kExitUnhealthy;
      }
    } else if (!patience.bears(run.error())) {
      return run.error();
    }
    command.around.wait(kAskEvery);
  }
}

}  // namespace skerry::cli
