// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/committed_ensemble.h"

#include <algorithm>

namespace skerry::cli {
namespace {

// An unfinished run goes on while it is fetched, and old checkpoints go: then
// the newer ones are asked for.
constexpr int kAttempts = 5;

Result<pb::EnsembleReply> describe_whole(Command& command, const std::string& run,
                                         const std::string& folder) {
  ASSIGN_OR_RETURN(pb::EnsembleReply ensemble, describe_ensemble(command, run));
  TRY(check_ensemble(ensemble, folder));
  return ensemble;
}

bool same_heads(const pb::EnsembleReply& one, const pb::EnsembleReply& other) {
  return one.learned_router().checkpoint().manifest() ==
             other.learned_router().checkpoint().manifest() &&
         std::equal(one.experts().begin(), one.experts().end(), other.experts().begin(),
                    other.experts().end(),
                    [](const pb::EnsembleExpert& a, const pb::EnsembleExpert& b) {
                      return a.checkpoint().manifest() == b.checkpoint().manifest();
                    });
}

}  // namespace

Result<pb::EnsembleReply> describe_ensemble(Command& command, const std::string& run) {
  ASSIGN_OR_RETURN(pb::AdminReply reply,
                   command.ask(named(&pb::AdminRequest::mutable_ensemble, run)));
  if (!reply.has_ensemble()) return unexpected_reply();
  return std::move(*reply.mutable_ensemble());
}

Result<pb::EnsembleReply> fetch_committed(Command& command, const std::string& run,
                                          const std::string& folder, const Extras& extras,
                                          Terminal& terminal, const std::string& kept) {
  ASSIGN_OR_RETURN(pb::EnsembleReply ensemble, describe_whole(command, run, folder));
  ASSIGN_OR_RETURN(AdminClient * client, command.client());
  for (int attempt = 1;; ++attempt) {
    const Result<void> fetched = fetch_ensemble(ensemble, folder, extras, *client, terminal, kept);
    if (fetched.has_value()) return ensemble;
    if (fetched.error().code != ErrorCode::kUnavailable || attempt == kAttempts)
      return fetched.error();
    Result<pb::EnsembleReply> newer = describe_whole(command, run, folder);
    if (!newer.has_value() || same_heads(*newer, ensemble)) return fetched.error();
    command.tell("the run has gone on meanwhile: fetching its newer checkpoints");
    ensemble = std::move(*newer);
  }
}

}  // namespace skerry::cli
