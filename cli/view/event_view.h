// SPDX-License-Identifier: Apache-2.0
// Events as JSON.
#pragma once

#include "cli/shell/output.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

Json event_json(const pb::Event& event);

}  // namespace skerry::cli
