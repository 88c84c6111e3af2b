// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/data_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "protocol/enrol.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "protocol/zmq_transport.h"
#include "storage/files.h"

namespace skerry::daemon {
namespace {

Result<std::string> token_text(const std::string& token) {
  constexpr std::string_view kFile = "file:";
  if (!token.starts_with(kFile)) return token;
  const std::string path = token.substr(kFile.size());
  std::ifstream file(path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file) {
    return fail(ErrorCode::kNotFound,
                text("cannot read the join token from ", path, ": ", std::strerror(errno)));
  }
  return std::move(bytes).str();
}

// Brings a token's newer addresses into an enrolled folder; a token that cannot
// be read any more is not needed here.
Result<void> refresh(const DataFolder& folder, protocol::Context& context, const std::string& token,
                     std::int64_t now) {
  const Result<std::string> words = token_text(token);
  if (token.empty() || !words) return {};
  const Result<protocol::JoinToken> parsed = protocol::parse_token(*words, now);
  if (!parsed) return {};
  if (parsed->coordinator_key != context.coordinator_key) {
    return fail(ErrorCode::kConflict,
                text("the folder ", folder.path().string(),
                     " belongs to another coordinator than the token; use a fresh --data folder"));
  }
  if (parsed->endpoints == context.endpoints) return {};
  log_info("the coordinator's addresses changed", {{"control", parsed->endpoints.control}});
  context.endpoints = parsed->endpoints;
  return protocol::write_context(folder.context_file(), context);
}

Result<protocol::Enrolled> ask(const protocol::Identity& identity, const protocol::JoinToken& token,
                               const std::string& name, const Clock& clock, Duration timeout,
                               int stop) {
  ASSIGN_OR_RETURN(const auto transport,
                   protocol::make_zmq_client(identity, {.endpoints = token.endpoints,
                                                        .coordinator_key = token.coordinator_key}));
  return protocol::enrol(*transport, clock, token, identity, name, timeout, stop);
}

}  // namespace

Result<DataFolder> DataFolder::claim(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return data_folder_error("create", path.string(), error.value());
  const std::string lock = (path / "lock").string();
  UniqueFd fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return data_folder_error("open", lock, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::kConflict,
                text("another skerryd is running on ", path.string(),
                     " (it holds the lock); give this one its own --data folder"));
  }
  return DataFolder(path, std::move(fd));
}

std::string default_name(const protocol::Identity& identity) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string suffix = "-" + identity.node_id().str().substr(0, 4);
  std::string name;
  for (const char c : std::string_view(host.data())) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool fits = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') ||
                      lower == '-' || lower == '.';
    if (name.size() + suffix.size() >= protocol::kNameBytes) break;
    if (fits && !(name.empty() && (lower == '-' || lower == '.'))) name += lower;
  }
  return (name.empty() ? "node" : name) + suffix;
}

Result<Membership> join(const DataFolder& folder, const std::string& token, const std::string& name,
                        const Clock& clock, Duration timeout, int stop) {
  const std::int64_t now = clock.now().unix_ms;
  Result<protocol::Context> known = protocol::read_context(folder.context_file());
  if (known) {
    TRY(refresh(folder, *known, token, now));
    ASSIGN_OR_RETURN(protocol::Identity identity,
                     protocol::identity_of(*known, folder.context_file()));
    return Membership{std::move(identity), std::move(*known)};
  }
  if (known.error().code != ErrorCode::kNotFound) return known.error();
  if (token.empty()) {
    return fail(ErrorCode::kInvalid,
                text(folder.path().string(), " is not enrolled: run skerryd join TOKEN --data ",
                     folder.path().string(), ", or set SKERRY_TOKEN"));
  }
  ASSIGN_OR_RETURN(const std::string words, token_text(token));
  ASSIGN_OR_RETURN(const protocol::JoinToken parsed, protocol::parse_token(words, now));
  if (parsed.role != pb::ROLE_NODE) {
    return fail(
        ErrorCode::kInvalid,
        "this token is a person's: use it with skerry login; nodes need a token of role node");
  }
  ASSIGN_OR_RETURN(protocol::Identity identity,
                   protocol::Identity::load_or_create(folder.identity_file()));
  const std::string wanted = name.empty() ? default_name(identity) : name;
  TRY(protocol::validate_name(wanted, "node name"));
  log_info("enrolling", {{"name", wanted}, {"at", parsed.endpoints.enrol}});
  ASSIGN_OR_RETURN(const protocol::Enrolled enrolled,
                   ask(identity, parsed, wanted, clock, timeout, stop));
  protocol::Context context;
  context.name = enrolled.body.name();
  context.role = enrolled.body.role();
  context.endpoints = parsed.endpoints;
  context.coordinator_key = parsed.coordinator_key;
  context.identity = "identity";
  context.certificate = enrolled.certificate;
  TRY(protocol::write_context(folder.context_file(), context));
  log_info("enrolled", {{"name", context.name}, {"id", identity.node_id()}});
  return Membership{std::move(identity), std::move(context)};
}

}  // namespace skerry::daemon
