// SPDX-License-Identifier: Apache-2.0
#include "protocol/context.h"

#include <array>

#include "base/text.h"
#include "base/toml.h"
#include "protocol/secret_file.h"

namespace skerry::protocol {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::array<std::string_view, 10> kKeys = {
    "format",          "name", "role",     "enrol",      "control", "blob",
    "coordinator_key", "seed", "identity", "certificate"};

struct Reader {
  const toml::table& table;
  const std::filesystem::path& path;

  Error bad(std::string_view message) const {
    return fail(ErrorCode::kInvalid, text(path.string(), ": ", message));
  }

  Result<std::string> optional(std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) return std::string();
    const auto value = node->value_exact<std::string>();
    if (value) return *value;
    return bad(text("line ", node->source().begin.line, ": ", key, " must be a string"));
  }
  Result<std::string> required(std::string_view key) const {
    ASSIGN_OR_RETURN(std::string value, optional(key));
    if (value.empty()) return bad(text(key, " is missing"));
    return value;
  }
  Result<std::string> hex(std::string_view key) const {
    ASSIGN_OR_RETURN(const std::string value, optional(key));
    auto bytes = from_hex(value);
    if (!bytes) return bad(text(key, " must be hexadecimal"));
    return bytes;
  }
};

Result<void> check_keys(const Reader& reader) {
  for (const auto& [key, node] : reader.table) {
    if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end()) {
      return reader.bad(
          text("line ", key.source().begin.line, ": unknown key \"", key.str(), "\""));
    }
  }
  const auto format = reader.table["format"].value<std::int64_t>();
  if (format != kFormat) return reader.bad(text("not a context of format ", kFormat));
  return {};
}

Result<pb::Role> role_of(const Reader& reader) {
  ASSIGN_OR_RETURN(const std::string word, reader.required("role"));
  if (word == "node") return pb::ROLE_NODE;
  if (word == "viewer") return pb::ROLE_VIEWER;
  if (word == "admin") return pb::ROLE_ADMIN;
  return reader.bad(text("role must be node, viewer or admin, found \"", word, "\""));
}

std::string_view word_of(pb::Role role) {
  if (role == pb::ROLE_ADMIN) return "admin";
  return role == pb::ROLE_VIEWER ? "viewer" : "node";
}

Result<Context> from_table(const Reader& reader) {
  TRY(check_keys(reader));
  Context context;
  ASSIGN_OR_RETURN(context.name, reader.required("name"));
  ASSIGN_OR_RETURN(context.role, role_of(reader));
  for (const Endpoint endpoint : kAllEndpoints) {
    ASSIGN_OR_RETURN(context.endpoints.of(endpoint), reader.required(to_string(endpoint)));
    auto checked = check_url(context.endpoints.of(endpoint));
    if (!checked) return reader.bad(checked.error().message);
  }
  ASSIGN_OR_RETURN(context.coordinator_key, reader.hex("coordinator_key"));
  if (!x25519_of(context.coordinator_key))
    return reader.bad("coordinator_key must be 64 hex digits of a key");
  ASSIGN_OR_RETURN(context.seed, reader.hex("seed"));
  ASSIGN_OR_RETURN(context.identity, reader.optional("identity"));
  if (context.seed.empty() == context.identity.empty())
    return reader.bad("needs either seed or identity");
  if (!context.seed.empty() && context.seed.size() != kKeyBytes)
    return reader.bad("seed must be 64 hex digits");
  ASSIGN_OR_RETURN(const std::string certificate, reader.hex("certificate"));
  if (!context.certificate.ParseFromString(certificate))
    return reader.bad("certificate is not one");
  return context;
}

}  // namespace

Result<Context> parse_context(std::string_view content, const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const toml::table table, parse_toml(content, path.string()));
  return from_table(Reader{table, path});
}

Result<Context> read_context(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string content, read_secret_file(path));
  return parse_context(content, path);
}

std::string format_context(const Context& context) {
  toml::table table;
  table.insert("format", kFormat);
  table.insert("name", context.name);
  table.insert("role", word_of(context.role));
  for (const Endpoint endpoint : kAllEndpoints)
    table.insert(to_string(endpoint), context.endpoints.of(endpoint));
  table.insert("coordinator_key", to_hex(context.coordinator_key));
  if (!context.seed.empty()) table.insert("seed", to_hex(context.seed));
  if (!context.identity.empty()) table.insert("identity", context.identity.string());
  table.insert("certificate", to_hex(context.certificate.SerializeAsString()));
  std::ostringstream out;
  out << "# How to reach one Skerry coordinator, and the key to do it with: keep it to yourself.\n"
      << table << '\n';
  return std::move(out).str();
}

Result<void> write_context(const std::filesystem::path& path, const Context& context) {
  return write_secret_file(path, format_context(context));
}

Result<Identity> identity_of(const Context& context, const std::filesystem::path& context_path) {
  if (!context.seed.empty()) return Identity::from_seed(context.seed);
  return Identity::load(context_path.parent_path() / context.identity);
}

}  // namespace skerry::protocol
