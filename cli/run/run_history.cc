// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_history.h"

#include <ostream>

#include "base/ids.h"
#include "base/text.h"
#include "cli/run/follow_run.h"
#include "cli/shell/exit_code.h"

namespace skerry::cli {

double samples_per_second(const pb::HistoryPoint& point) {
  return point.train_seconds() > 0 ? static_cast<double>(point.samples()) / point.train_seconds()
                                   : 0;
}

Json to_json(std::uint32_t expert, const pb::HistoryPoint& point) {
  return {{"expert", expert},
          {"number", point.number()},
          {"step", point.step()},
          {"time", time_or_null(point.unix_ms())},
          {"loss", point.loss()},
          {"gradient_norm", point.gradient_norm()},
          {"samples", point.samples()},
          {"train_seconds", point.train_seconds()},
          {"node", text_or_null(point.node())},
          {"epoch", point.epoch()},
          {"attempt", point.attempt()}};
}

Result<void> each_point(Command& command, const std::string& run, std::uint32_t expert,
                        std::uint64_t after,
                        const std::function<Result<void>(const pb::HistoryPoint&)>& visit) {
  while (true) {
    pb::AdminRequest request;
    request.mutable_run_history()->set_name(run);
    request.mutable_run_history()->set_expert(expert);
    request.mutable_run_history()->set_after(after);
    ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
    if (!reply.has_history()) return unexpected_reply();
    if (reply.history().points().empty()) return {};
    for (const pb::HistoryPoint& point : reply.history().points()) {
      if (point.number() <= after) return unexpected_reply();
      after = point.number();
      TRY(visit(point));
    }
  }
}

Result<int> print_history(Command& command, const std::string& run, const HistoryOptions& options) {
  std::uint32_t first = options.expert.value_or(0), end = first + 1;
  if (!options.expert) {
    ASSIGN_OR_RETURN(const pb::RunInfo shown,
                     one_run(command, named(&pb::AdminRequest::mutable_run_show, run)));
    end = static_cast<std::uint32_t>(shown.experts_size());
  }
  Json items = Json::array();
  Table table({"EXPERT", "STEP", "TIME", "LOSS", "NORM", "SAMPLES/S", "NODE", "EPOCH"});
  for (std::uint32_t expert = first; expert < end; ++expert) {
    TRY(each_point(command, run, expert, options.after,
                   [&](const pb::HistoryPoint& point) -> Result<void> {
                     if (command.json()) {
                       items.push_back(to_json(expert, point));
                     } else {
                       table.add({text(expert), text(point.step()), utc_time(point.unix_ms()),
                                  fixed(point.loss(), 4), fixed(point.gradient_norm(), 3),
                                  fixed(samples_per_second(point), 1), or_dash(point.node()),
                                  text(Epoch(point.epoch()))});
                     }
                     return {};
                   }));
  }
  if (command.json()) {
    print_items(command.out(), std::move(items));
  } else {
    table.print(command.out(), command.colour());
  }
  return kExitOk;
}

}  // namespace skerry::cli
