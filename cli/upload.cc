#include "cli/upload.h"

#include <algorithm>

#include "base/progress.h"
#include "cli/patience.h"
#include "cli/transfer.h"

namespace skerry::cli {

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
  return client->serve(*served.shelf, [&]() -> Result<bool> {
    if (patience.away()) {  // it may have forgotten from whom it had the rest
      const Result<pb::AdminReply> told = command.ask(request);
      if (!told.has_value() && patience.bears(told.error())) return false;
      TRY(told);
    }
    const Result<pb::DatasetInfo> shown = one_dataset(command, name);
    if (!shown.has_value() && patience.bears(shown.error())) return false;
    TRY(shown);
    patience.answered();
    progress.show(shown->received_bytes(), std::max(shown->bytes(), served.bytes));
    return shown->state() == "ready";
  });
}

}  // namespace skerry::cli
