// SPDX-License-Identifier: Apache-2.0
// The context file: how a person's or a node's program finds and recognises its
// coordinator after enrolment. It is a TOML file of mode 0600, since it can
// hold the seed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/endpoints.h"
#include "protocol/identity.h"
#include "protocol/skerry.pb.h"

namespace skerry::protocol {

struct Context {
  std::string name;  // of the node or person
  pb::Role role = pb::ROLE_NONE;
  Endpoints endpoints;
  std::string coordinator_key;     // Ed25519, raw
  std::string seed;                // raw; empty: in the file `identity`
  std::filesystem::path identity;  // relative paths start at the context's folder
  pb::Certificate certificate;
};

// `path` names the file in messages.
// ON FAILURE: kInvalid, with the line, for text that is not TOML and for an
// unknown or missing key.
Result<Context> parse_context(std::string_view content, const std::filesystem::path& path);
std::string format_context(const Context& context);

// ON FAILURE: kNotFound if there is no file; else as parse_context().
Result<Context> read_context(const std::filesystem::path& path);
// Writes the file atomically with mode 0600, and syncs it.
Result<void> write_context(const std::filesystem::path& path, const Context& context);
// Makes the identity from the seed, or reads it from the identity file.
Result<Identity> identity_of(const Context& context, const std::filesystem::path& context_path);

}  // namespace skerry::protocol
