// SPDX-License-Identifier: Apache-2.0
#include "cli/dataset/upload.h"

#include <algorithm>
#include <utility>

#include "base/progress.h"
#include "cli/dataset/transfer.h"
#include "cli/shell/patience.h"

namespace skerry::cli {
namespace {

constexpr int kIdleLooks = 10;  // of half a second, in which nothing arrived

}  // namespace

Result<pb::DatasetInfo> one_dataset(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::AdminReply reply,
                   command.ask(named(&pb::AdminRequest::mutable_dataset_show, name)));
  if (reply.datasets().datasets_size() != 1) return unexpected_reply();
  return reply.datasets().datasets(0);
}

Result<void> upload(Command& command, const std::string& name, const DatasetIndex& index) {
  ASSIGN_OR_RETURN(const ServedDataset served, open_dataset(index, name, command.around));
  pb::AdminRequest request;
  *request.mutable_dataset_add() = served.announcement;
  TRY(command.ask(request));
  ASSIGN_OR_RETURN(AdminClient * client, command.client());
  Progress progress(command.around, "uploading", Progress::Unit::kBytes);
  Patience patience(command);
  patience.answered();
  std::uint64_t received = 0;
  int idle_looks = 0;
  return client->serve(*served.chunk_store, [&]() -> Result<bool> {
    // A coordinator that started again has forgotten who serves the rest. It
    // may have been away too shortly to be missed.
    if (patience.away() || idle_looks >= kIdleLooks) {
      idle_looks = 0;
      const Result<pb::AdminReply> told = command.ask(request);
      if (!told.has_value() && patience.bears(told.error())) return false;
      TRY(told);
    }
    const Result<pb::DatasetInfo> shown = one_dataset(command, name);
    if (!shown.has_value() && patience.bears(shown.error())) return false;
    TRY(shown);
    patience.answered();
    idle_looks = shown->received_bytes() == std::exchange(received, shown->received_bytes())
                     ? idle_looks + 1
                     : 0;
    progress.show(shown->received_bytes(), std::max(shown->bytes(), served.bytes));
    return shown->state() == "ready";
  });
}

}  // namespace skerry::cli
