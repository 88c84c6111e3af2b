// After a restore: what was revoked since the backup comes back from the nodes, which hold this coordinator's own records of
// it, before anybody is answered. Who enrolled since the backup comes back by the certificate that it was given.
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {

void Machine::begin_recall() {
  if (planted("recall_skipped")) meta.change().set_recalls_revocations(false);
  if (!recalls()) return;
  recall_until = now.boot + config.recall_limit;
  recovery_until = recovery_limit = recall_until;
  events.tell("recalling",
              text("this coordinator was restored: for up to ", human_duration(config.recall_limit),
                   " it answers nobody, and asks nodes what it had revoked"));
}

void Machine::check_recall() {
  if (!recalls()) return;
  std::size_t known = 0;
  std::size_t heard = 0;
  for (const auto& [id, node] : nodes) {
    if (!node.is_node() || !node.record->present() || node.record->revoked()) continue;
    ++known;
    heard += recalled.contains(id) ? 1 : 0;
  }
  const std::string words = text(heard, " of the ", known, " nodes that the backup knows as present, and ",
                                 recalled.size() - heard, " others, gave back what they hold");
  const bool is_too_soon = now.boot < recall_until - config.recall_limit + config.recall_least;
  if (2 * heard > known && !is_too_soon) return end_recall(words);
  if (now.boot >= recall_until)
    end_recall(text(human_duration(config.recall_limit), " have passed: ", words));
}

// From here on everybody is answered. Nobody is taken for lost before it had time to say Hello.
void Machine::end_recall(const std::string& reason) {
  meta.change().set_recalls_revocations(false);
  events.tell("recalled", reason);
  for (const auto& [key, body] : std::exchange(readmitted, {})) {
    if (revoked_keys.contains(body.node_id()) || nodes.contains(body.node_id()) ||
        nodes.size() >= config.nodes)
      continue;
    const Node& node =
        roster(NodeId(body.node_id()), body.ed25519_key(), body.x25519_key(), body.role(), body.name());
    events.tell("readmitted", "by its certificate, since the restored state did not know it",
                node.record->name());
  }
  for (auto& [id, node] : nodes) node.seen = now.boot;
  recovery_until = now.boot + config.lease + config.grace;
  recovery_limit = now.boot + config.longest_recovery * (config.lease + config.grace);
  unsettled = true;
}

void Machine::records_heard(const RecordsHeard& event) {
  for (const NodeId& id : event.revoked) take_back_revocation(id);
  for (const NodeId& id : event.recalled) recalled.insert(id.str());
  hear_orphans(event.runs);
  check_recall();
}

void Machine::take_back_revocation(const NodeId& id) {
  constexpr char kWhy[] =
      "as a record of this coordinator says, which is newer than the state that was restored";
  if (const auto node = nodes.find(id.str()); node != nodes.end()) {
    if (!node->second.record->revoked()) revoke(node->second, kWhy);
    return;
  }
  if (revoked_keys.contains(id.str())) return;
  stored::RevokedKey revoked;
  revoked.set_node(id.str());
  revoked_keys.insert({Tracked(std::move(revoked))});
  const auto let_in =
      std::ranges::find(readmitted, id.str(), [](const auto& each) { return each.second.node_id(); });
  if (let_in != readmitted.end()) {
    effects.roster.push_back({id, let_in->first, let_in->second.role(), false});
    readmitted.erase(let_in);
  }
  events.tell("revoked", text("key ", id.str().substr(0, 12), ", ", kWhy));
}

// By the certificate that it was given before the state was lost. While revocations are recalled it is let in for its
// records only, and told to ask again.
Result<pb::Certificate> Machine::readmit(const EnrolReceived& event, const NodeId& id) {
  ASSIGN_OR_RETURN(const pb::CertificateBody body, authority.open(event.request.certificate(), now.unix_ms));
  const bool is_own = body.node_id() == id.str() && body.x25519_key() == event.key &&
                      body.ed25519_key() == event.request.ed25519_key();
  if (!is_own) return fail(ErrorCode::kUnauthorised, "the certificate is another key's");
  const auto known = nodes.find(id.str());
  if (recalls()) {
    if (known != nodes.end()) return fail(ErrorCode::kUnavailable, kRecalling);
    if (readmitted.size() < config.nodes && readmitted.emplace(event.key, body).second)
      effects.roster.push_back({id, event.key, body.role(), true});
    return fail(ErrorCode::kUnavailable, kRecalling);
  }
  if (known != nodes.end()) {
    asked_again(known->second);
    return known->second.record->certificate();
  }
  TRY(make_room_in_roster());
  const Node& node = roster(id, body.ed25519_key(), body.x25519_key(), body.role(), body.name());
  events.tell("readmitted", "by its certificate, since the restored state did not know it",
              node.record->name());
  return node.record->certificate();
}

}  // namespace skerry::coordinator
