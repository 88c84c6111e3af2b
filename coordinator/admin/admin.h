// SPDX-License-Identifier: Apache-2.0
// Admin requests, one function each. Read-only requests take `const Rooms&`.
#pragma once

#include <string>

#include "base/text.h"
#include "coordinator/core/rooms.h"

namespace skerry::coordinator {

using AdminResult = Result<pb::AdminReply>;

// RETURNS: a reply without content, for a request that succeeded.
inline pb::AdminReply acknowledged() {
  pb::AdminReply reply;
  reply.mutable_ack();
  return reply;
}

AdminResult token_create(Rooms& rooms, const pb::TokenCreate& request);
AdminResult token_list(const Rooms& rooms, const pb::ListRequest& request);
AdminResult token_revoke(Rooms& rooms, const pb::Named& request);

AdminResult node_list(const Rooms& rooms, const pb::ListRequest& request);
AdminResult node_show(const Rooms& rooms, const pb::Named& request);
AdminResult node_cordon(Rooms& rooms, const pb::Named& request, bool cordoned);
// The drain has ended when the node's state is no longer "draining".
AdminResult node_drain(Rooms& rooms, const pb::Named& request);
AdminResult node_evict(Rooms& rooms, const pb::Named& request);
AdminResult node_revoke(Rooms& rooms, const pb::Named& request);
void revoke(Rooms& rooms, Node& node, const std::string& reason);
// The first request asks the node. A later one, after the node has replied,
// returns the lines.
AdminResult node_logs(Rooms& rooms, const pb::Named& request);

AdminResult dataset_add(Rooms& rooms, const pb::DatasetAdd& request, const Node& person);
AdminResult dataset_list(const Rooms& rooms, const pb::ListRequest& request);
AdminResult dataset_show(const Rooms& rooms, const pb::Named& request);
AdminResult dataset_delete(Rooms& rooms, const pb::Named& request);

AdminResult run_create(Rooms& rooms, const pb::RunCreate& request);
AdminResult run_list(const Rooms& rooms, const pb::ListRequest& request);
AdminResult run_show(const Rooms& rooms, const pb::Named& request);
AdminResult run_why(const Rooms& rooms, const pb::Named& request);
AdminResult run_history(const Rooms& rooms, const pb::RunHistory& request);
AdminResult run_pause(Rooms& rooms, const pb::Named& request);
AdminResult run_resume(Rooms& rooms, const pb::Named& request);
AdminResult run_stop(Rooms& rooms, const pb::Named& request);
AdminResult run_extend(Rooms& rooms, const pb::RunExtend& request);
AdminResult run_budget(Rooms& rooms, const pb::RunBudget& request);
AdminResult run_expert(Rooms& rooms, const pb::RunExpert& request);
AdminResult run_adopt(Rooms& rooms, const pb::RunAdopt& request);
AdminResult run_delete(Rooms& rooms, const pb::Named& request);
AdminResult shard_list(const Rooms& rooms, const pb::Named& request);
AdminResult ensemble(const Rooms& rooms, const pb::Named& request);
AdminResult status(const Rooms& rooms);

AdminResult object_list(const Rooms& rooms, const pb::ObjectList& request);
AdminResult object_verify(Rooms& rooms, const pb::ObjectVerify& request);

// Builds one page of a list that is keyed by name. Calls add(item) → size from
// the first key after request.after(), for at most `most` items and `bytes`.
// RETURNS: the last key that was added if more follow, else "".
template <class Map, class Add>
std::string page(const Map& items, const pb::ListRequest& request, std::size_t most,
                 std::size_t bytes, Add add) {
  const std::size_t limit =
      request.limit() == 0 ? most : std::min<std::size_t>(request.limit(), most);
  std::size_t used = 0;
  std::size_t count = 0;
  std::string last;
  for (auto item = items.upper_bound(typename Map::key_type(request.after())); item != items.end();
       ++item) {
    if (count >= limit || used >= bytes) return last;
    used += add(item->second);
    last = text(item->first);
    ++count;
  }
  return "";
}

}  // namespace skerry::coordinator
