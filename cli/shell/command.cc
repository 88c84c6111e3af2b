// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/command.h"

#include <istream>
#include <ostream>
#include <utility>

#include "base/text.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"

namespace skerry::cli {

Result<AdminClient*> Command::client() {
  if (!client_) {
    ASSIGN_OR_RETURN(client_, around.connect(context));
  }
  return client_.get();
}

Result<pb::AdminReply> Command::ask(const pb::AdminRequest& request) {
  ASSIGN_OR_RETURN(AdminClient * connected, client());
  Result<pb::AdminReply> reply = connected->ask(request);
  if (reply && reply->lacks_room() && !std::exchange(warned_, true)) {
    tell(
        "warning: the coordinator's disk is full. What this shows may be lost if it restarts: free "
        "space there");
  }
  return reply;
}

void Command::tell(const std::string& words) { around.err() << words << std::endl; }

void Command::did(const std::string& kind, const std::string& name, const std::string& done) {
  tell(text(name, ": ", done));
  if (json()) print_object(out(), {{kind, name}, {"done", done}});
}

Result<int> Command::carry_out(const std::string& kind, pb::Named* (pb::AdminRequest::*part)(),
                               const std::string& name, const std::string& done) {
  TRY(ask(named(part, name)));
  did(kind, name, done);
  return kExitOk;
}

Result<void> Command::confirm(const std::string& question) {
  if (yes || !around.in_is_terminal()) return {};
  if (!around.err_is_terminal()) {
    return fail(ErrorCode::kConflict, "not done: the question \"" + question +
                                          "\" would not be seen; --yes goes on without asking");
  }
  around.err() << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(around.in(), answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return fail(ErrorCode::kConflict,
              "not done: the answer was not yes (--yes goes on without asking)");
}

pb::AdminRequest named(pb::Named* (pb::AdminRequest::*part)(), const std::string& name) {
  pb::AdminRequest request;
  (request.*part)()->set_name(name);
  return request;
}

Error unexpected_reply() {
  return fail(ErrorCode::kCorrupt,
              "the coordinator's answer does not fit the question: is it of another version? "
              "`skerry doctor` tells");
}

}  // namespace skerry::cli
