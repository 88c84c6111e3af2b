// Requests of people, by role: an admin may all, a viewer reads, a node nothing.
#include "coordinator/admin.h"
#include "base/text.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {
namespace {

bool is_read(const pb::AdminRequest& request) {
  switch (request.body_case()) {
    case pb::AdminRequest::kNodeList:
    case pb::AdminRequest::kNodeShow:
    case pb::AdminRequest::kNodeLogs:
    case pb::AdminRequest::kDatasetList:
    case pb::AdminRequest::kDatasetShow:
    case pb::AdminRequest::kRunList:
    case pb::AdminRequest::kRunShow:
    case pb::AdminRequest::kRunWhy:
    case pb::AdminRequest::kShardList:
    case pb::AdminRequest::kEventList:
    case pb::AdminRequest::kEnsemble:
    case pb::AdminRequest::kStatus:
    case pb::AdminRequest::kObjectList:
      return true;
    default:
      return false;
  }
}

// A run is stopped or paused before it can be deleted, and its dataset after that.
bool makes_room(const pb::AdminRequest& request) {
  return request.has_dataset_delete() || request.has_run_delete() || request.has_run_stop() ||
         request.has_run_pause();
}

AdminResult answer(Rooms& rooms, const Node& person, const pb::AdminRequest& request) {
  using Request = pb::AdminRequest;
  switch (request.body_case()) {
    case Request::kTokenCreate:
      return token_create(rooms, request.token_create());
    case Request::kTokenList:
      return token_list(rooms, request.token_list());
    case Request::kTokenRevoke:
      return token_revoke(rooms, request.token_revoke());
    case Request::kNodeList:
      return node_list(rooms, request.node_list());
    case Request::kNodeShow:
      return node_show(rooms, request.node_show());
    case Request::kNodeCordon:
      return node_cordon(rooms, request.node_cordon(), true);
    case Request::kNodeUncordon:
      return node_cordon(rooms, request.node_uncordon(), false);
    case Request::kNodeDrain:
      return node_drain(rooms, request.node_drain());
    case Request::kNodeEvict:
      return node_evict(rooms, request.node_evict());
    case Request::kNodeRevoke:
      return node_revoke(rooms, request.node_revoke());
    case Request::kNodeLogs:
      return node_logs(rooms, request.node_logs());
    case Request::kDatasetAdd:
      return dataset_add(rooms, request.dataset_add(), person);
    case Request::kDatasetList:
      return dataset_list(rooms, request.dataset_list());
    case Request::kDatasetShow:
      return dataset_show(rooms, request.dataset_show());
    case Request::kDatasetDelete:
      return dataset_delete(rooms, request.dataset_delete());
    case Request::kRunCreate:
      return run_create(rooms, request.run_create());
    case Request::kRunList:
      return run_list(rooms, request.run_list());
    case Request::kRunShow:
      return run_show(rooms, request.run_show());
    case Request::kRunPause:
      return run_pause(rooms, request.run_pause());
    case Request::kRunResume:
      return run_resume(rooms, request.run_resume());
    case Request::kRunStop:
      return run_stop(rooms, request.run_stop());
    case Request::kRunExtend:
      return run_extend(rooms, request.run_extend());
    case Request::kRunExpert:
      return run_expert(rooms, request.run_expert());
    case Request::kRunAdopt:
      return run_adopt(rooms, request.run_adopt());
    case Request::kRunDelete:
      return run_delete(rooms, request.run_delete());
    case Request::kRunWhy:
      return run_why(rooms, request.run_why());
    case Request::kShardList:
      return shard_list(rooms, request.shard_list());
    case Request::kEventList:
      return rooms.events.list(request.event_list());
    case Request::kEnsemble:
      return ensemble(rooms, request.ensemble());
    case Request::kStatus:
      return status(rooms);
    case Request::kObjectList:
      return object_list(rooms, request.object_list());
    case Request::kObjectVerify:
      return object_verify(rooms, request.object_verify());
    case Request::BODY_NOT_SET:
      break;
  }
  return fail(ErrorCode::kInvalid, "the request asks for nothing that this version knows");
}

}  // namespace

void Machine::admin(Node& person, const Received& event) {
  const pb::AdminRequest& request = event.request.admin();
  const pb::Role role = person.record->role();
  const ConnectionId connection = event.connection;
  const std::uint64_t id = event.request.id();
  if (role != pb::ROLE_ADMIN && !(role == pb::ROLE_VIEWER && is_read(request))) {
    const char* who = role == pb::ROLE_VIEWER ? "a viewer may only read" : "a node may not ask this";
    reply_error(connection, id, fail(ErrorCode::kUnauthorised, text(who, ": log in with an admin's token")));
    turn_away({event.key, event.address, "control: asked for what only an admin may do", {}, {}});
    return;
  }
  effects.batch.makes_room = makes_room(request);
  AdminResult result = answer(*this, person, request);
  if (!result) {
    reply_error(connection, id, result.error());
    return;
  }
  if (result->has_ensemble())
    objects.keep_for_reader(NodeId(person.record->id()), connection, result->ensemble());
  pb::ControlReply message;
  message.set_id(id);
  *message.mutable_admin() = std::move(*result);
  reply(connection, std::move(message));
}

}  // namespace skerry::coordinator
