// SPDX-License-Identifier: Apache-2.0
// token …: what lets a machine or a person in.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/words.h"
#include "protocol/limits.h"
#include "protocol/token.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::seconds kLongestTtl(protocol::kTokenTtlSeconds);

struct CreateOptions {
  std::string role = "node";
  std::uint32_t uses = 1;
  std::string ttl = "24h";
};

std::string token_state(const pb::TokenInfo& token, std::int64_t now_unix_ms) {
  if (token.revoked()) return "revoked";
  if (token.used() >= token.uses()) return "spent";
  return token.expires_unix_ms() <= now_unix_ms ? "expired" : "open";
}

Json to_json(const pb::TokenInfo& token, std::int64_t now_unix_ms) {
  return {{"id", token.id()},
          {"role", role_name(token.role())},
          {"state", token_state(token, now_unix_ms)},
          {"uses", token.uses()},
          {"used", token.used()},
          {"expires_at", time_or_null(token.expires_unix_ms())}};
}

std::string join_command(const std::string& token, pb::Role role) {
  return role == pb::ROLE_NODE ? text("skerryd join ", token, " --data DIR")
                               : text("skerry login ", token);
}

Result<int> create_token(Command& command, const CreateOptions& options) {
  ASSIGN_OR_RETURN(const pb::Role role, parse_role(options.role));
  ASSIGN_OR_RETURN(const std::chrono::seconds ttl, parse_duration(options.ttl));
  if (ttl > kLongestTtl)
    return fail(ErrorCode::kInvalid,
                text("--ttl ", options.ttl, " is more than ten years: use 3650d or less"));
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(role);
  request.mutable_token_create()->set_uses(options.uses);
  request.mutable_token_create()->set_ttl_seconds(static_cast<std::uint64_t>(ttl.count()));
  ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
  if (!reply.has_token_created()) return unexpected_reply();
  const pb::TokenInfo& info = reply.token_created().info();
  ASSIGN_OR_RETURN(AdminClient * client, command.client());
  const Place& place = client->place();
  const std::string token = protocol::format_token({.endpoints = place.endpoints,
                                                    .coordinator_key = place.coordinator_key,
                                                    .id = TokenId(info.id()),
                                                    .secret = reply.token_created().secret(),
                                                    .role = role,
                                                    .expires_unix_ms = info.expires_unix_ms()});
  const std::string join = join_command(token, role);
  if (command.json()) {
    Json out = to_json(info, command.around.unix_ms());
    out["token"] = token;
    out["join_command"] = join;
    print_object(command.out(), std::move(out));
    return kExitOk;
  }
  command.out() << token << '\n';
  command.tell(text("for ", options.uses == 1 ? "one " : text("up to ", options.uses, " "),
                    role_name(role), options.uses == 1 ? "" : "s", ", until ",
                    utc_time(info.expires_unix_ms()), "; it is a secret. To use it:\n  ", join));
  return kExitOk;
}

Result<int> list_tokens(Command& command) {
  ASSIGN_OR_RETURN(
      const std::vector<pb::TokenInfo> tokens,
      list_all<pb::TokenInfo>(
          command, &pb::AdminRequest::mutable_token_list,
          [](const pb::AdminReply& reply, std::vector<pb::TokenInfo>& items, std::string& next) {
            if (!reply.has_tokens()) return false;
            items.insert(items.end(), reply.tokens().tokens().begin(),
                         reply.tokens().tokens().end());
            next = reply.tokens().next();
            return true;
          }));
  const std::int64_t now = command.around.unix_ms();
  Json items = Json::array();
  Table table({"ID", "ROLE", "STATE", "USED", "OF", "EXPIRES"});
  for (const pb::TokenInfo& token : tokens) {
    items.push_back(to_json(token, now));
    table.add({token.id(), role_name(token.role()), token_state(token, now), text(token.used()),
               text(token.uses()), utc_time(token.expires_unix_ms())});
  }
  if (command.json()) {
    print_items(command.out(), std::move(items));
  } else {
    table.print(command.out(), command.colour());
  }
  return kExitOk;
}

}  // namespace

void add_token_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("token", "What lets a machine or a person in");
  group->require_subcommand(1);

  CLI::App* create = group->add_subcommand("create", "Prints a token and the command that uses it");
  auto options = std::make_shared<CreateOptions>();
  create->add_option("--role", options->role, "node, viewer or admin")
      ->check(CLI::IsMember({"node", "viewer", "admin"}))
      ->capture_default_str()
      ->type_name("ROLE");
  create->add_option("--uses", options->uses, "how many may use it")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{1'000'000}))
      ->capture_default_str()
      ->type_name("N");
  create->add_option("--ttl", options->ttl, "until when: 90s, 15m, 24h, 7d")
      ->capture_default_str()
      ->type_name("TIME");
  create->footer("Example:\n  skerry token create --role node --uses 20 --ttl 48h");
  create->callback([&command, options] {
    command.chosen = [&command, options] { return create_token(command, *options); };
  });

  CLI::App* list =
      group->add_subcommand("list", "Lists tokens and what is left of them, never their secrets");
  list->footer("Example:\n  skerry token list -o json");
  list->callback([&command] { command.chosen = [&command] { return list_tokens(command); }; });

  CLI::App* revoke =
      group->add_subcommand("revoke", "Makes a token useless; who joined with it stays");
  auto id = std::make_shared<std::string>();
  revoke->add_option("ID", *id, "as `skerry token list` shows it")->required()->type_name("");
  revoke->footer("Example:\n  skerry token revoke 3f9a0c12be77");
  revoke->callback([&command, id] {
    command.chosen = [&command, id]() -> Result<int> {
      TRY(command.confirm(text("Make the token ", *id, " useless?")));
      return command.carry_out("token", &pb::AdminRequest::mutable_token_revoke, *id, "revoked");
    };
  });
}

}  // namespace skerry::cli
