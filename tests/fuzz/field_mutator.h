// SPDX-License-Identifier: Apache-2.0 Mutates one field of a protobuf message
// at any depth. It changes, removes, duplicates or adds the field, and corrects
// the enclosing lengths. Mutations of bytes alone mostly break the lengths and
// rarely reach deep fields.
//
// Knows the wire format and no types: bytes that parse as a message count as
// one.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>

namespace skerry::fuzz {

using MutateBytes = std::function<std::string(std::string)>;

// Empty where `message` reads as none. `bytes` changes what has no fields of
// its own: a text, a hash.
std::string mutate_fields(std::string_view message, std::minstd_rand& random,
                          const MutateBytes& bytes);

}  // namespace skerry::fuzz
