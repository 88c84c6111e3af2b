#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kShownOfId = 12;  // characters in the table of `skerry node list`

}  // namespace

// By name, by id, or by the beginning of an id that `node list` shows.
Result<Node*> Machine::find_node(const std::string& name) {
  const auto named_so = roster.ids().find(name);
  const std::string& id = named_so == roster.ids().end() ? name : named_so->second;
  const auto found = roster.all().lower_bound(id);
  const auto begins_so = [&](const auto& at) {
    return at != roster.all().end() && at->first.starts_with(id);
  };
  if (!begins_so(found) || id.size() < kShownOfId || (found->first != id && begins_so(std::next(found))))
    return fail(ErrorCode::kNotFound, text("no node ", name, "; see \"skerry node list\""));
  return &found->second;
}

pb::NodeInfo Machine::node_info(const Node& node) const {
  pb::NodeInfo info;
  info.set_id(node.record->id());
  info.set_name(node.record->name());
  info.set_state(roster.state(node));
  info.set_role(node.record->role());
  for (const pb::Slot& slot : node.session->slots) *info.add_slots() = slot;
  for (const pb::SlotStatus& status : node.session->status) {
    *info.add_status() = status;
    if (const auto run = runs.all().find(status.run()); run != runs.all().end())
      (*info.mutable_run_names())[status.run()] = run->second.record->spec().name();
  }
  info.set_last_seen_unix_ms(node.session->seen_unix_ms);
  info.set_joined_unix_ms(node.record->joined_unix_ms());
  info.set_software(node.session->software);
  info.set_host_label(node.session->host_label);
  info.set_address(node.session->address);
  return info;
}

// Nodes only; people are found by name.
AdminResult Machine::node_list(const pb::ListRequest& request) const {
  pb::AdminReply reply;
  auto& list = *reply.mutable_nodes();
  list.set_next(page(roster.ids(), request, protocol::kPageItems, config.reply_bytes,
                     [&](const std::string& id) -> std::size_t {
                       const Node& node = roster.at(id);
                       if (!node.is_node()) return 0;
                       *list.add_nodes() = node_info(node);
                       return list.nodes(list.nodes_size() - 1).ByteSizeLong();
                     }));
  return reply;
}

AdminResult Machine::node_show(const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(request.name()));
  pb::AdminReply reply;
  *reply.mutable_nodes()->add_nodes() = node_info(*node);
  return reply;
}

AdminResult Machine::node_cordon(const pb::Named& request, bool cordoned) {
  ASSIGN_OR_RETURN(Node* const node, find_node(request.name()));
  if (node->record->revoked()) return fail(ErrorCode::kConflict, text(request.name(), " is revoked"));
  if (node->record->cordoned() == cordoned && !node->record->draining()) return acknowledged();
  roster.cordon(*node, cordoned);
  return acknowledged();
}

// Done when its state is no longer "draining".
AdminResult Machine::node_drain(const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(request.name()));
  if (node->record->revoked()) return fail(ErrorCode::kConflict, text(request.name(), " is revoked"));
  if (!node->record->draining() && !(node->record->cordoned() && node->leases->empty())) roster.drain(*node);
  return acknowledged();
}

AdminResult Machine::node_evict(const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(request.name()));
  if (node->record->revoked()) return fail(ErrorCode::kConflict, text(request.name(), " is revoked"));
  leases.release_all(*node, "lease_lost", text(node->record->name(), " was evicted"), true);
  roster.evict(*node);
  return acknowledged();
}

AdminResult Machine::node_revoke(const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(request.name()));
  const stored::Node& record = *node->record;
  if (record.revoked()) return acknowledged();
  const auto admins = std::ranges::count_if(roster.all(), [](const auto& other) {
    return other.second.record->role() == pb::ROLE_ADMIN && !other.second.record->revoked();
  });
  if (record.role() == pb::ROLE_ADMIN && admins == 1) {
    return fail(ErrorCode::kConflict, text(request.name(), " is the only admin: enrol another one first"));
  }
  revoke(*node, "its key is refused from now on");
  return acknowledged();
}

// The first call asks the node; a later one, once it has answered, brings the lines.
AdminResult Machine::node_logs(const pb::Named& request) {
  ASSIGN_OR_RETURN(Node* const node, find_node(request.name()));
  if (!roster.is_live(*node)) {
    return fail(ErrorCode::kUnavailable,
                text(request.name(), " is ", roster.unusable_because(*node), ": its log is out of reach"));
  }
  pb::AdminReply reply;
  auto& logs = *reply.mutable_logs();
  if (const auto lines = roster.take_log(*node)) {
    logs.set_ready(true);
    for (const std::string& line : *lines) logs.add_lines(line);
  }
  return reply;
}

}  // namespace skerry::coordinator
