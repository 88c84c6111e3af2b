// SPDX-License-Identifier: Apache-2.0
// Sends libprotobuf's own messages to our log instead of standard error. It
// writes one, for instance, for each text from outside that is not UTF-8. The
// log gets at most one line a minute, with the number left out since the last
// one. So no sender of bad text can fill a disk.
#pragma once

#include "base/clock.h"

namespace skerry::protocol {

// THREADS: main calls it before it starts other threads.
// LIFETIME: `clock` outlives every use of a message.
void bound_protobuf_log(const Clock& clock);

}  // namespace skerry::protocol
