// SPDX-License-Identifier: Apache-2.0
// What a person's or a node's program keeps after enrolment to find and
// recognise its coordinator: a TOML file, mode 0600 since it can hold the seed.
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
  std::filesystem::path identity;  // relative to the context's folder where not absolute
  pb::Certificate certificate;
};

// kInvalid with the line for text that is not TOML, an unknown or a missing
// key; `path` names the file in messages.
Result<Context> parse_context(std::string_view content, const std::filesystem::path& path);
std::string format_context(const Context& context);

// kNotFound where there is none, else as parse_context.
Result<Context> read_context(const std::filesystem::path& path);
// Mode 0600, atomically, synced.
Result<void> write_context(const std::filesystem::path& path, const Context& context);
// From the seed, or from the identity file.
Result<Identity> identity_of(const Context& context, const std::filesystem::path& context_path);

}  // namespace skerry::protocol
