// SPDX-License-Identifier: Apache-2.0
// Join tokens_ and enrolment.
#include "base/text.h"
#include "coordinator/rooms/roster.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kTokenIdBytes = 6;
constexpr std::size_t kSecretBytes = 32;

}  // namespace

Result<pb::Certificate> Roster::enrol(const EnrolReceived& event) {
  const pb::EnrolRequest& request = event.request;
  ASSIGN_OR_RETURN(const NodeId id, context.authority.check_possession(request, event.key));
  constexpr char kIsRevoked[] = "this key is revoked; remove the data folder to join anew";
  if (revoked_keys_.contains(id)) return fail(ErrorCode::kUnauthorised, kIsRevoked);
  const auto known = nodes_.find(id);
  if (known != nodes_.end() && known->second.record->revoked())
    return fail(ErrorCode::kUnauthorised, kIsRevoked);
  if (request.has_certificate()) return readmit(event, id);
  if (context.recalls()) return fail(ErrorCode::kUnavailable, kRecalling);
  // A retry: the same answer, and no second use. The key proves who asks, so a
  // token spent or expired meanwhile does not matter.
  if (known != nodes_.end() && known->second.record->token() == request.token_id()) {
    asked_again(known->second);
    return known->second.record->certificate();
  }
  ASSIGN_OR_RETURN(Plain<stored::Token>* const found, usable_token(request));
  // A node asks until it is answered; a person is told.
  if (context.lacks_room && found->record->info().role() != pb::ROLE_NODE)
    return fail(ErrorCode::kExhausted, kNoRoom);
  if (known == nodes_.end()) TRY(make_room());
  if (known != nodes_.end()) asked_again(known->second);
  pb::TokenInfo& token = *found->record.change().mutable_info();
  token.set_used(token.used() + 1);
  Node& node = admit(id, request.ed25519_key(), event.key, token.role(), request.name());
  node.record.change().set_token(token.id());
  events_.tell_of(EventKind::kEnrolled,
                  text("by token ", token.id(), ", use ", token.used(), " of ", token.uses()),
                  node.record->name(), token.id());
  return node.record->certificate();
}

// The roster is bounded, and rented machines come and go.
Result<void> Roster::make_room() {
  if (nodes_.size() < config.nodes) return {};
  forget_gone(config.forget_when_full_ms, std::max<std::size_t>(config.nodes / 100, 1));
  if (nodes_.size() < config.nodes) return {};
  return fail(ErrorCode::kExhausted,
              text("the roster is full: it has ", nodes_.size(),
                   " keys, and none is of a node that has been gone for ",
                   human_duration(std::chrono::milliseconds(config.forget_when_full_ms)),
                   "; enrol again once nodes have been away for so long"));
}

// A token that has a use left, or why not.
Result<Plain<stored::Token>*> Roster::usable_token(const pb::EnrolRequest& request) {
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::kUnauthorised, text("token ", request.token_id(), " ", why,
                                               "; make a new one with \"skerry token create\""));
  };
  const auto found = tokens_.find(TokenId(request.token_id()));
  if (found == tokens_.end()) return refused("is unknown to this coordinator");
  const stored::Token& token = *found->second.record;
  if (blake2b(request.token_secret()).raw() != token.secret_hash())
    return refused("comes with a wrong secret");
  const pb::TokenInfo& info = token.info();
  if (now.unix_ms >= info.expires_unix_ms())
    return refused(text("expired at ", utc_time(info.expires_unix_ms())));
  if (info.revoked()) return refused("is revoked");
  if (info.used() >= info.uses()) {
    return refused(text("is spent: it had ", info.uses(), info.uses() == 1 ? " use" : " uses"));
  }
  return &found->second;
}

Node& Roster::admit(const NodeId& id, const std::string& ed25519, const std::string& x25519,
                    pb::Role role, const std::string& name) {
  if (!nodes_.contains(id)) {
    stored::Node record;
    std::string unique = name.empty() ? "node-" + id.str().substr(0, 6) : name;
    if (ids_.contains(unique) || nodes_.contains(NodeId(unique))) {
      const std::string suffix = "-" + id.str().substr(0, 6);
      unique = unique.substr(0, protocol::kNameBytes - suffix.size()) + suffix;
      while (ids_.contains(unique)) unique = id.str();  // an id is unique, and a valid name
    }
    record.set_id(id.str());
    record.set_name(unique);
    record.set_ed25519_key(ed25519);
    record.set_x25519_key(x25519);
    record.set_joined_unix_ms(now.unix_ms);
    record.set_gone_unix_ms(now.unix_ms);
    ids_[unique] = id;
    ids_of_keys_[x25519] = id;
    nodes_.insert({.record = Tracked(std::move(record))});
  }
  Node& node = nodes_.at(id);
  stored::Node& record = node.record.change();
  record.set_role(role);
  pb::CertificateBody body;
  body.set_version(1);
  body.set_node_id(id.str());
  body.set_ed25519_key(ed25519);
  body.set_x25519_key(x25519);
  body.set_role(role);
  body.set_name(record.name());
  body.set_issued_unix_ms(now.unix_ms);
  body.set_expires_unix_ms(now.unix_ms + config.certificate_ms);
  *record.mutable_certificate() = context.authority.certify(std::move(body));
  effects.roster.push_back({id, x25519, role, true});
  return node;
}

pb::TokenCreated Roster::make_token(pb::Role role, std::uint32_t uses, std::uint64_t ttl_seconds) {
  pb::TokenCreated created;
  created.set_secret(*from_hex(context.random_hex(kSecretBytes)));
  pb::TokenInfo& info = *created.mutable_info();
  do {
    info.set_id(context.random_hex(kTokenIdBytes));
  } while (tokens_.contains(TokenId(info.id())));
  info.set_role(role);
  info.set_uses(uses);
  info.set_expires_unix_ms(now.unix_ms + static_cast<std::int64_t>(ttl_seconds) * 1000);
  stored::Token token;
  *token.mutable_info() = info;
  token.set_secret_hash(blake2b(created.secret()).raw());
  tokens_.insert({Tracked(std::move(token))});
  return created;
}

void Roster::forget_dead_tokens() {
  tokens_.erase_if([&](const auto& token) {
    const pb::TokenInfo& info = token.record->info();
    return info.revoked() || info.used() >= info.uses() || info.expires_unix_ms() <= now.unix_ms;
  });
}

bool Roster::revoke_token(const TokenId& id) {
  const auto token = tokens_.find(id);
  if (token == tokens_.end()) return false;
  token->second.record.change().mutable_info()->set_revoked(true);
  return true;
}

}  // namespace skerry::coordinator
