// SPDX-License-Identifier: Apache-2.0
// What libprotobuf would write to standard error by itself, for instance for
// each text from outside that is no UTF-8, goes to our log instead: one line a
// minute, with how many there were since the one before. Whoever sends it
// cannot fill a disk.
#pragma once

#include "base/clock.h"

namespace skerry::protocol {

// Called by main before there are other threads. `clock` must outlive every use
// of a message.
void bound_protobuf_log(const Clock& clock);

}  // namespace skerry::protocol
