// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core/config.h"

#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

Result<void> Config::check() const {
  const auto relation = [](bool holds, const std::string& what) -> Result<void> {
    if (holds) return {};
    return fail(ErrorCode::kInvalid, what);
  };
  TRY(relation(heartbeat.count() > 0, "the heartbeat must be longer than nothing"));
  TRY(relation(lease >= 3 * heartbeat,
               text("a lease of ", human_duration(lease), " must be at least three heartbeats of ",
                    human_duration(heartbeat))));
  TRY(relation(grace >= lease / 10,
               text("a grace of ", human_duration(grace),
                    " must be at least a tenth of the lease, ", human_duration(lease))));
  TRY(relation(reconnect < lease,
               text("the time to reconnect, ", human_duration(reconnect),
                    ", must be shorter than the lease, ", human_duration(lease))));
  TRY(relation(early_end_share >= 0 && early_end_share <= 1,
               "the share of early ends must be between 0 and 1"));
  TRY(relation(attempts > 0 && dials_per_second > 0,
               "attempts and dials per second must be above 0"));
  TRY(relation(recall_limit >= heartbeat,
               text("a recall limit of ", human_duration(recall_limit),
                    " must be at least a heartbeat, ", human_duration(heartbeat))));
  TRY(relation(recall_least <= recall_limit,
               text("the shortest recall, ", human_duration(recall_least),
                    ", must not be longer than its limit, ", human_duration(recall_limit))));
  TRY(relation(longest_recovery >= 1, "the recovery window cannot be shorter than its length"));
  TRY(relation(2 * replicas_of_node <= protocol::kReplicas,
               "a node's replicas, a head and a commit each, must fit into one message"));
  return {};
}

}  // namespace skerry::coordinator
