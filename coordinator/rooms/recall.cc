// SPDX-License-Identifier: Apache-2.0
// The recall after a restore. Nodes return the coordinator's own records of
// revocations since the backup, before it serves any request. A node that
// enrolled since the backup returns by its certificate.
#include "base/text.h"
#include "coordinator/rooms/roster.h"

namespace skerry::coordinator {

void Roster::begin_recall() {
  if (!context.recalls()) return;
  recall_until_ = now.boot + config.recall_limit;
  recovery_until_ = recovery_limit_ = recall_until_;
  events_.tell(
      EventKind::kRecallBegun,
      text("this coordinator was restored: for up to ", human_duration(config.recall_limit),
           " it answers nobody, and asks nodes what it had revoked"));
}

void Roster::check_recall() {
  if (!context.recalls()) return;
  std::size_t known = 0;
  std::size_t heard = 0;
  for (const auto& [id, node] : nodes_) {
    if (!node.is_node() || !node.record->present() || node.record->revoked()) continue;
    ++known;
    heard += recalled_.contains(id) ? 1 : 0;
  }
  const std::string words =
      text(heard, " of the ", known, " nodes that the backup knows as present, and ",
           recalled_.size() - heard, " others, gave back what they hold");
  const bool is_too_soon = now.boot < recall_until_ - config.recall_limit + config.recall_least;
  if (2 * heard > known && !is_too_soon) return end_recall(words);
  if (now.boot >= recall_until_)
    end_recall(text(human_duration(config.recall_limit), " have passed: ", words));
}

// From here on everybody is answered. Nobody is taken for lost before it had
// time to say Hello.
void Roster::end_recall(const std::string& reason) {
  context.meta.change().set_recalls_revocations(false);
  events_.tell(EventKind::kRecalled, reason);
  for (const auto& [key, body] : std::exchange(readmitted_, {})) {
    const NodeId id(body.node_id());
    if (revoked_keys_.contains(id) || nodes_.contains(id) || nodes_.size() >= config.nodes)
      continue;
    const Node& node = admit(id, body.ed25519_key(), body.x25519_key(), body.role(), body.name());
    events_.tell(EventKind::kReadmitted,
                 "by its certificate, since the restored state did not know it",
                 node.record->name());
  }
  for (auto& [id, node] : nodes_) session(node).seen = now.boot;
  recovery_until_ = now.boot + config.lease + config.grace;
  recovery_limit_ = now.boot + config.longest_recovery * (config.lease + config.grace);
  context.must_reschedule = true;
}

const pb::CertificateBody* Roster::find_readmitted(const std::string& x25519) const {
  const auto found = readmitted_.find(x25519);
  return found == readmitted_.end() ? nullptr : &found->second;
}

void Roster::gave_back(const std::vector<NodeId>& holders) {
  recalled_.insert(holders.begin(), holders.end());
}

void Roster::revoke_unknown(const NodeId& id, const std::string& reason) {
  if (revoked_keys_.contains(id)) return;
  stored::RevokedKey revoked;
  revoked.set_node(id.str());
  revoked_keys_.insert({Tracked(std::move(revoked))});
  const auto let_in = std::ranges::find(readmitted_, id.str(),
                                        [](const auto& each) { return each.second.node_id(); });
  if (let_in != readmitted_.end()) {
    effects.roster.push_back({id, let_in->first, let_in->second.role(), false});
    readmitted_.erase(let_in);
  }
  events_.tell(EventKind::kRevoked, text("key ", id.str().substr(0, 12), ", ", reason));
}

// By the certificate that it was given before the state was lost. While
// revocations are recalled_ it is let in for its records only, and told to ask
// again.
Result<pb::Certificate> Roster::readmit(const EnrolReceived& event, const NodeId& id) {
  ASSIGN_OR_RETURN(const pb::CertificateBody body,
                   context.authority.open(event.request.certificate(), now.unix_ms));
  const bool is_own = body.node_id() == id.str() && body.x25519_key() == event.key &&
                      body.ed25519_key() == event.request.ed25519_key();
  if (!is_own) return fail(ErrorCode::kUnauthorised, "the certificate is another key's");
  const auto known = nodes_.find(id);
  if (context.recalls()) {
    if (known != nodes_.end()) return fail(ErrorCode::kUnavailable, kRecalling);
    if (readmitted_.size() < config.nodes && readmitted_.emplace(event.key, body).second)
      effects.roster.push_back({id, event.key, body.role(), true});
    return fail(ErrorCode::kUnavailable, kRecalling);
  }
  if (known != nodes_.end()) {
    asked_again(known->second);
    return known->second.record->certificate();
  }
  TRY(make_room());
  const Node& node = admit(id, body.ed25519_key(), body.x25519_key(), body.role(), body.name());
  events_.tell(EventKind::kReadmitted,
               "by its certificate, since the restored state did not know it", node.record->name());
  return node.record->certificate();
}

}  // namespace skerry::coordinator
