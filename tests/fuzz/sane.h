// SPDX-License-Identifier: Apache-2.0
// Checks the promises of validate.h for every message that it accepts: finite
// numbers, known enumerators, hashes and keys of the right length, valid names.
// Walks the message's descriptor instead of naming fields.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace skerry::fuzz {

// Aborts and names the field that breaks a promise.
void check_sane(const google::protobuf::Message& message);

// Aborts unless `message`, serialised and given to `parse`, comes back accepted
// and the same.
template <class Message, class Parse>
void check_comes_back(const Message& message, Parse parse);

}  // namespace skerry::fuzz

#include "base/check.h"
#include "storage/serialise_in_order.h"

namespace skerry::fuzz {

template <class Message, class Parse>
void check_comes_back(const Message& message, Parse parse) {
  const auto again = parse(message.SerializeAsString());
  SKERRY_CHECK(again.has_value(), "refused when encoded again: ", again.error().message);
  SKERRY_CHECK(storage::serialise_in_order(*again) == storage::serialise_in_order(message),
               "differs when encoded again");
}

}  // namespace skerry::fuzz
