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

// kFreesRoom: allowed on a full disk. A run is stopped or paused before it can
// be deleted, and its dataset after that.
enum class Kind : std::uint8_t { kRead, kChange, kFreesRoom };
using enum Kind;

struct Answer {
  Request::BodyCase request;
  pb::Role role;  // the least that may ask
  Kind kind;
  AdminResult (*answer)(Rooms& rooms, const Node& person, const Request& request);
};

constexpr Answer kAnswers[] = {
    {Request::kTokenCreate, pb::ROLE_ADMIN, kChange, ask<&Request::token_create, token_create>},
    {Request::kTokenList, pb::ROLE_ADMIN, kRead, ask<&Request::token_list, token_list>},
    {Request::kTokenRevoke, pb::ROLE_ADMIN, kChange, ask<&Request::token_revoke, token_revoke>},
    {Request::kNodeList, pb::ROLE_VIEWER, kRead, ask<&Request::node_list, node_list>},
    {Request::kNodeShow, pb::ROLE_VIEWER, kRead, ask<&Request::node_show, node_show>},
    {Request::kNodeCordon, pb::ROLE_ADMIN, kChange,
     [](Rooms& rooms, const Node&, const Request& asked) {
       return node_cordon(rooms, asked.node_cordon(), true);
     }},
    {Request::kNodeUncordon, pb::ROLE_ADMIN, kChange,
     [](Rooms& rooms, const Node&, const Request& asked) {
       return node_cordon(rooms, asked.node_uncordon(), false);
     }},
    {Request::kNodeDrain, pb::ROLE_ADMIN, kChange, ask<&Request::node_drain, node_drain>},
    {Request::kNodeEvict, pb::ROLE_ADMIN, kChange, ask<&Request::node_evict, node_evict>},
    {Request::kNodeRevoke, pb::ROLE_ADMIN, kChange, ask<&Request::node_revoke, node_revoke>},
    {Request::kNodeLogs, pb::ROLE_VIEWER, kRead, ask<&Request::node_logs, node_logs>},
    {Request::kDatasetAdd, pb::ROLE_ADMIN, kChange,
     [](Rooms& rooms, const Node& person, const Request& asked) {
       return dataset_add(rooms, asked.dataset_add(), person);
     }},
    {Request::kDatasetList, pb::ROLE_VIEWER, kRead, ask<&Request::dataset_list, dataset_list>},
    {Request::kDatasetShow, pb::ROLE_VIEWER, kRead, ask<&Request::dataset_show, dataset_show>},
    {Request::kDatasetDelete, pb::ROLE_ADMIN, kFreesRoom,
     ask<&Request::dataset_delete, dataset_delete>},
    {Request::kRunCreate, pb::ROLE_ADMIN, kChange, ask<&Request::run_create, run_create>},
    {Request::kRunList, pb::ROLE_VIEWER, kRead, ask<&Request::run_list, run_list>},
    {Request::kRunShow, pb::ROLE_VIEWER, kRead, ask<&Request::run_show, run_show>},
    {Request::kRunPause, pb::ROLE_ADMIN, kFreesRoom, ask<&Request::run_pause, run_pause>},
    {Request::kRunResume, pb::ROLE_ADMIN, kChange, ask<&Request::run_resume, run_resume>},
    {Request::kRunStop, pb::ROLE_ADMIN, kFreesRoom, ask<&Request::run_stop, run_stop>},
    {Request::kRunExtend, pb::ROLE_ADMIN, kChange, ask<&Request::run_extend, run_extend>},
    {Request::kRunBudget, pb::ROLE_ADMIN, kChange, ask<&Request::run_budget, run_budget>},
    {Request::kRunExpert, pb::ROLE_ADMIN, kChange, ask<&Request::run_expert, run_expert>},
    {Request::kRunAdopt, pb::ROLE_ADMIN, kChange, ask<&Request::run_adopt, run_adopt>},
    {Request::kRunDelete, pb::ROLE_ADMIN, kFreesRoom, ask<&Request::run_delete, run_delete>},
    {Request::kRunWhy, pb::ROLE_VIEWER, kRead, ask<&Request::run_why, run_why>},
    {Request::kRunHistory, pb::ROLE_VIEWER, kRead, ask<&Request::run_history, run_history>},
    {Request::kShardList, pb::ROLE_VIEWER, kRead, ask<&Request::shard_list, shard_list>},
    {Request::kEventList, pb::ROLE_VIEWER, kRead,
     [](Rooms& rooms, const Node&, const Request& asked) {
       return rooms.events.list(asked.event_list());
     }},
    {Request::kEnsemble, pb::ROLE_VIEWER, kRead, ask<&Request::ensemble, ensemble>},
    {Request::kStatus, pb::ROLE_VIEWER, kRead,
     [](Rooms& rooms, const Node&, const Request&) { return status(rooms); }},
    {Request::kObjectList, pb::ROLE_VIEWER, kRead, ask<&Request::object_list, object_list>},
    {Request::kObjectVerify, pb::ROLE_ADMIN, kRead, ask<&Request::object_verify, object_verify>},
};

}  // namespace

void Machine::admin(Node& person, const Received& event) {
  const Request& request = event.request.admin();
  const ConnectionId connection = event.connection;
  const std::uint64_t id = event.request.id();
  const pb::Role role = person.record->role();
  const Answer* const known = std::ranges::find(kAnswers, request.body_case(), &Answer::request);
  const bool exists = known != std::end(kAnswers);
  if (role != pb::ROLE_ADMIN &&
      !(role == pb::ROLE_VIEWER && exists && known->role == pb::ROLE_VIEWER)) {
    const char* who =
        role == pb::ROLE_VIEWER ? "a viewer may only read" : "a node may not ask this";
    reply_error(connection, id,
                fail(ErrorCode::kUnauthorised, text(who, ": log in with an admin's token")));
    turn_away({event.key, event.address, "control: asked for what only an admin may do", {}, {}});
  } else if (!exists) {
    reply_error(connection, id,
                fail(ErrorCode::kInvalid, "the request asks for nothing that this version knows"));
  } else if (lacks_room && known->kind == kChange) {
    reply_error(connection, id, fail(ErrorCode::kExhausted, kNoRoom));
  } else {
    AdminResult result = known->answer(*this, person, request);
    effects.batch.makes_room = result && known->kind == kFreesRoom;
    reply_to(person, event, std::move(result));
  }
  if (lacks_room && !effects.batch.makes_room) send_at_once();
}

void Machine::reply_to(const Node& person, const Received& event, AdminResult result) {
  if (!result) {
    reply_error(event.connection, event.request.id(), result.error());
    return;
  }
  if (result->has_ensemble())
    objects.keep_for_reader(person.id(), event.connection, result->ensemble());
  result->set_lacks_room(lacks_room);
  pb::ControlReply message;
  message.set_id(event.request.id());
  *message.mutable_admin() = std::move(*result);
  reply(event.connection, std::move(message));
}

}  // namespace skerry::coordinator
