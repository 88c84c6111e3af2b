// SPDX-License-Identifier: Apache-2.0
// Requests of people, by role: an admin may all, a viewer reads, a node
// nothing.
#include "coordinator/admin/admin.h"

#include <algorithm>

#include "base/text.h"
#include "coordinator/core/machine.h"

namespace skerry::coordinator {
namespace {

using Request = pb::AdminRequest;

template <auto kPart, auto kAnswer>
AdminResult ask(Rooms& rooms, const Node& /*person*/, const Request& request) {
  return kAnswer(rooms, (request.*kPart)());
}

struct Answer {
  Request::BodyCase request;
  pb::Role role;  // the least that may ask
  AdminResult (*answer)(Rooms& rooms, const Node& person, const Request& request);
};

constexpr Answer kAnswers[] = {
    {Request::kTokenCreate, pb::ROLE_ADMIN, ask<&Request::token_create, token_create>},
    {Request::kTokenList, pb::ROLE_ADMIN, ask<&Request::token_list, token_list>},
    {Request::kTokenRevoke, pb::ROLE_ADMIN, ask<&Request::token_revoke, token_revoke>},
    {Request::kNodeList, pb::ROLE_VIEWER, ask<&Request::node_list, node_list>},
    {Request::kNodeShow, pb::ROLE_VIEWER, ask<&Request::node_show, node_show>},
    {Request::kNodeCordon, pb::ROLE_ADMIN,
     [](Rooms& rooms, const Node&, const Request& asked) {
       return node_cordon(rooms, asked.node_cordon(), true);
     }},
    {Request::kNodeUncordon, pb::ROLE_ADMIN,
     [](Rooms& rooms, const Node&, const Request& asked) {
       return node_cordon(rooms, asked.node_uncordon(), false);
     }},
    {Request::kNodeDrain, pb::ROLE_ADMIN, ask<&Request::node_drain, node_drain>},
    {Request::kNodeEvict, pb::ROLE_ADMIN, ask<&Request::node_evict, node_evict>},
    {Request::kNodeRevoke, pb::ROLE_ADMIN, ask<&Request::node_revoke, node_revoke>},
    {Request::kNodeLogs, pb::ROLE_VIEWER, ask<&Request::node_logs, node_logs>},
    {Request::kDatasetAdd, pb::ROLE_ADMIN,
     [](Rooms& rooms, const Node& person, const Request& asked) {
       return dataset_add(rooms, asked.dataset_add(), person);
     }},
    {Request::kDatasetList, pb::ROLE_VIEWER, ask<&Request::dataset_list, dataset_list>},
    {Request::kDatasetShow, pb::ROLE_VIEWER, ask<&Request::dataset_show, dataset_show>},
    {Request::kDatasetDelete, pb::ROLE_ADMIN, ask<&Request::dataset_delete, dataset_delete>},
    {Request::kRunCreate, pb::ROLE_ADMIN, ask<&Request::run_create, run_create>},
    {Request::kRunList, pb::ROLE_VIEWER, ask<&Request::run_list, run_list>},
    {Request::kRunShow, pb::ROLE_VIEWER, ask<&Request::run_show, run_show>},
    {Request::kRunPause, pb::ROLE_ADMIN, ask<&Request::run_pause, run_pause>},
    {Request::kRunResume, pb::ROLE_ADMIN, ask<&Request::run_resume, run_resume>},
    {Request::kRunStop, pb::ROLE_ADMIN, ask<&Request::run_stop, run_stop>},
    {Request::kRunExtend, pb::ROLE_ADMIN, ask<&Request::run_extend, run_extend>},
    {Request::kRunBudget, pb::ROLE_ADMIN, ask<&Request::run_budget, run_budget>},
    {Request::kRunExpert, pb::ROLE_ADMIN, ask<&Request::run_expert, run_expert>},
    {Request::kRunAdopt, pb::ROLE_ADMIN, ask<&Request::run_adopt, run_adopt>},
    {Request::kRunDelete, pb::ROLE_ADMIN, ask<&Request::run_delete, run_delete>},
    {Request::kRunWhy, pb::ROLE_VIEWER, ask<&Request::run_why, run_why>},
    {Request::kShardList, pb::ROLE_VIEWER, ask<&Request::shard_list, shard_list>},
    {Request::kEventList, pb::ROLE_VIEWER,
     [](Rooms& rooms, const Node&, const Request& asked) {
       return rooms.events.list(asked.event_list());
     }},
    {Request::kEnsemble, pb::ROLE_VIEWER, ask<&Request::ensemble, ensemble>},
    {Request::kStatus, pb::ROLE_VIEWER,
     [](Rooms& rooms, const Node&, const Request&) { return status(rooms); }},
    {Request::kObjectList, pb::ROLE_VIEWER, ask<&Request::object_list, object_list>},
    {Request::kObjectVerify, pb::ROLE_ADMIN, ask<&Request::object_verify, object_verify>},
};

// A run is stopped or paused before it can be deleted, and its dataset after
// that.
bool makes_room(const pb::AdminRequest& request) {
  return request.has_dataset_delete() || request.has_run_delete() || request.has_run_stop() ||
         request.has_run_pause();
}

}  // namespace

void Machine::admin(Node& person, const Received& event) {
  const Request& request = event.request.admin();
  const pb::Role role = person.record->role();
  const ConnectionId connection = event.connection;
  const std::uint64_t id = event.request.id();
  const Answer* const known = std::ranges::find(kAnswers, request.body_case(), &Answer::request);
  const bool is_read = known != std::end(kAnswers) && known->role == pb::ROLE_VIEWER;
  if (role != pb::ROLE_ADMIN && !(role == pb::ROLE_VIEWER && is_read)) {
    const char* who =
        role == pb::ROLE_VIEWER ? "a viewer may only read" : "a node may not ask this";
    reply_error(connection, id,
                fail(ErrorCode::kUnauthorised, text(who, ": log in with an admin's token")));
    turn_away({event.key, event.address, "control: asked for what only an admin may do", {}, {}});
    return;
  }
  effects.batch.makes_room = makes_room(request);
  AdminResult result =
      known == std::end(kAnswers)
          ? fail(ErrorCode::kInvalid, "the request asks for nothing that this version knows")
          : known->answer(*this, person, request);
  if (!result) {
    reply_error(connection, id, result.error());
    return;
  }
  if (result->has_ensemble()) objects.keep_for_reader(person.id(), connection, result->ensemble());
  pb::ControlReply message;
  message.set_id(id);
  *message.mutable_admin() = std::move(*result);
  reply(connection, std::move(message));
}

}  // namespace skerry::coordinator
