// SPDX-License-Identifier: Apache-2.0
// The coordinator's log on a simulated disk: one record for each batch, its
// length and hash before it, so that a record that a crash cut off is known
// from a whole one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/core.h"

namespace skerry::simulation {

std::string encode_batch(const std::vector<coordinator::Write>& writes);
// The whole records from the front, up to the first that is not.
std::vector<std::vector<coordinator::Write>> decode_batches(std::string_view log);

}  // namespace skerry::simulation
