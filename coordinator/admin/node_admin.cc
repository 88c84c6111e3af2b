// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kShownOfId = 12;  // characters in the table of `skerry node list`

// By name, by id, or by the beginning of an id that `node list` shows.
Result<const Node*> find_node(const Rooms& rooms, const std::string& name) {
  const auto named_so = rooms.roster.ids().find(name);
  const NodeId id = named_so == rooms.roster.ids().end() ? NodeId(name) : named_so->second;
  const auto found = rooms.roster.all().lower_bound(id);
  const auto begins_so = [&](const auto& at) {
    return at != rooms.roster.all().end() && at->first.str().starts_with(id.str());
  };
  if (!begins_so(found) || id.str().size() < kShownOfId ||
      (found->first != id && begins_so(std::next(found))))
    return fail(ErrorCode::kNotFound, text("no node ", name, "; see \"skerry node list\""));
  return &found->second;
}

// The node says what its lease's own slot does; the further ones do the same.
void show_further_slots(const Rooms& rooms, const Node& node, pb::NodeInfo& info) {
  for (const ExpertId& id : *node.leases) {
    const stored::Lease& lease = rooms.runs.at(id.run).experts[id.index].record->lease();
    const auto at = [&](std::uint32_t slot) {
      return std::ranges::find(*info.mutable_status(), slot, &pb::SlotStatus::slot);
    };
    const auto own = at(lease.slot());
    if (own == info.mutable_status()->end() || own->run() != id.run.str()) continue;
    for (const std::uint32_t slot : lease.more_slots()) {
      const auto further = at(slot);
      if (further == info.mutable_status()->end() || !further->run().empty()) continue;
      *further = *own;
      further->set_slot(slot);
      further->set_samples_per_second(0);  // the rate is that of all of them
    }
  }
}

pb::NodeInfo node_info(const Rooms& rooms, const Node& node) {
  pb::NodeInfo info;
  info.set_id(node.record->id());
  info.set_name(node.record->name());
  info.set_state(rooms.roster.state(node));
  info.set_role(node.record->role());
  for (const pb::Slot& slot : node.session->slots) {
    *info.add_slots() = slot;
    const std::optional<Speed> speed = rooms.speeds.of({node.id(), slot.device()});
    if (!speed) continue;
    info.set_speed(info.speed() + speed->operations_per_second);
    if (info.speed_from().empty()) info.set_speed_from(to_string(speed->from));
  }
  for (const pb::SlotStatus& status : node.session->status) {
    *info.add_status() = status;
    if (const auto run = rooms.runs.all().find(RunId(status.run())); run != rooms.runs.all().end())
      (*info.mutable_run_names())[status.run()] = run->second.record->spec().name();
  }
  show_further_slots(rooms, node, info);
  info.set_last_seen_unix_ms(node.session->seen_unix_ms);
  info.set_joined_unix_ms(node.record->joined_unix_ms());
  info.set_software(node.session->software);
  info.set_host_label(node.session->host_label);
  info.set_price(node.session->price);
  info.set_address(node.session->address);
  if (const auto left = rooms.roster.leaves_in_seconds(node)) info.set_leaves_in_seconds(*left);
  return info;
}

Result<Node*> find_node(Rooms& rooms, const std::string& name) {
  ASSIGN_OR_RETURN(const Node* const node, find_node(std::as_const(rooms), name));
  return &rooms.roster.at(node->id());
}

Result<Node*> find_unrevoked(Rooms& rooms, const std::string& name) {
  ASSIGN_OR_RETURN(Node* const node, find_node(rooms, name));
  if (node->record->revoked()) return fail(ErrorCode::kConflict, text(name, " is revoked"));
  return node;
}

}  // namespace

// Nodes only; people are found by name.
AdminResult node_list(const Rooms& rooms, const pb::ListRequest& request) {
  pb::AdminReply reply;
  auto& list = *reply.mutable_nodes();
  list.set_next(page(rooms.roster.ids(), request, protocol::kPageItems, rooms.config.reply_bytes,
                     [&](const NodeId& id) -> std::size_t {
                       const Node& node = rooms.roster.at(id);
                       if (!node.is_node()) return 0;
                       *list.add_nodes() = node_info(rooms, node);
                       return list.nodes(list.nodes_size() - 1).ByteSizeLong();
                     }));
  return reply;
}

AdminResult node_show(const Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(const Node* const node, find_node(rooms, request.name()));
  pb::AdminReply reply;
  *reply.mutable_nodes()->add_nodes() = node_info(rooms, *node);
  return reply;
}

AdminResult node_cordon(Rooms& rooms, const pb::Named& request, bool cordoned) {
  ASSIGN_OR_RETURN(Node* const node, find_unrevoked(rooms, request.name()));
  if (node->record->cordoned() == cordoned && !node->record->draining()) return acknowledged();
  rooms.roster.cordon(*node, cordoned);
  return acknowledged();
}

AdminResult node_drain(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_unrevoked(rooms, request.name()));
  if (!node->record->draining() && !(node->record->cordoned() && node->leases->empty()))
    rooms.roster.drain(*node);
  return acknowledged();
}

AdminResult node_evict(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_unrevoked(rooms, request.name()));
  rooms.leases.release_all(*node, EventKind::kLeaseLost, text(node->record->name(), " was evicted"),
                           true);
  rooms.roster.evict(*node);
  return acknowledged();
}

AdminResult node_revoke(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(rooms, request.name()));
  const stored::Node& record = *node->record;
  if (record.revoked()) return acknowledged();
  const auto admins = std::ranges::count_if(rooms.roster.all(), [](const auto& other) {
    return other.second.record->role() == pb::ROLE_ADMIN && !other.second.record->revoked();
  });
  if (record.role() == pb::ROLE_ADMIN && admins == 1) {
    return fail(ErrorCode::kConflict,
                text(request.name(), " is the only admin: enrol another one first"));
  }
  revoke(rooms, *node, "its key is refused from now on");
  return acknowledged();
}

void revoke(Rooms& rooms, Node& node, const std::string& reason) {
  rooms.leases.release_all(node, EventKind::kLeaseLost, text(node.record->name(), " was revoked"),
                           true);
  rooms.roster.revoke(node, reason);
}

AdminResult node_logs(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(rooms, request.name()));
  if (!rooms.roster.is_live(*node)) {
    return fail(ErrorCode::kUnavailable,
                text(request.name(), " is ", rooms.roster.unusable_because(*node),
                     ": its log is out of reach"));
  }
  pb::AdminReply reply;
  auto& logs = *reply.mutable_logs();
  if (const auto lines = rooms.roster.take_log(*node)) {
    logs.set_ready(true);
    for (const std::string& line : *lines) logs.add_lines(line);
  }
  return reply;
}

}  // namespace skerry::coordinator
