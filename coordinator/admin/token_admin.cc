// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

AdminResult token_create(Rooms& rooms, const pb::TokenCreate& request) {
  if (request.role() != pb::ROLE_NODE && request.role() != pb::ROLE_VIEWER &&
      request.role() != pb::ROLE_ADMIN) {
    return fail(ErrorCode::kInvalid, "a token's role is node, viewer or admin");
  }
  if (request.uses() == 0 || request.uses() > protocol::kTokenUses) {
    return fail(ErrorCode::kInvalid,
                text("a token has 1 to ", protocol::kTokenUses, " uses, not ", request.uses()));
  }
  if (request.ttl_seconds() == 0 || request.ttl_seconds() > protocol::kTokenTtlSeconds) {
    return fail(ErrorCode::kInvalid,
                text("a token lives 1 to ", protocol::kTokenTtlSeconds, " seconds"));
  }
  if (rooms.roster.tokens().size() >= rooms.config.tokens) rooms.roster.forget_dead_tokens();
  if (rooms.roster.tokens().size() >= rooms.config.tokens)
    return fail(ErrorCode::kExhausted, "too many live tokens; revoke some first");
  pb::AdminReply reply;
  *reply.mutable_token_created() =
      rooms.roster.make_token(request.role(), request.uses(), request.ttl_seconds());
  return reply;
}

AdminResult token_list(const Rooms& rooms, const pb::ListRequest& request) {
  pb::AdminReply reply;
  auto& list = *reply.mutable_tokens();
  list.set_next(page(rooms.roster.tokens(), request, protocol::kPageItems, rooms.config.reply_bytes,
                     [&](const Plain<stored::Token>& token) {
                       *list.add_tokens() = token.record->info();
                       return token.record->info().ByteSizeLong();
                     }));
  return reply;
}

AdminResult token_revoke(Rooms& rooms, const pb::Named& request) {
  if (!rooms.roster.revoke_token(TokenId(request.name())))
    return fail(ErrorCode::kNotFound, text("no token ", request.name()));
  return acknowledged();
}

}  // namespace skerry::coordinator
