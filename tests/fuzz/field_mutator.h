// SPDX-License-Identifier: Apache-2.0
// Changes a protobuf message as a message: one field of it, however deep, gets
// another value, is left out or said twice, or one that was not there is, and
// the lengths around it are right again. Changes of bytes alone mostly break
// the lengths, so that whatever lies deep in a message is hardly ever reached
// by them.
// Knows the wire format and no types: bytes that read as a message count as
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
