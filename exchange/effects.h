// SPDX-License-Identifier: Apache-2.0
// What an exchange wants done. Jobs first, then sends, then what the host
// should know, in their order here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "exchange/jobs.h"
#include "protocol/skerry.pb.h"

namespace skerry::exchange {

struct Send {
  PeerId peer;
  pb::BlobMessage message;
};

struct Progress {
  std::uint64_t bytes = 0;  // stored of the wanted parts, what was there before included
  std::uint64_t total_bytes = 0;
};

// What came of an object over the network, what was thrown away not counted,
// and how long that took.
struct TransferStats {
  std::uint64_t bytes = 0;
  Duration took{};  // from the first request to the last chunk
  std::map<PeerId, std::uint64_t> from;
};

// Every wanted chunk is sealed on disk: now it may be announced (S7).
struct Completed {
  Hash object;
  TransferStats stats;
};

struct Failed {
  Hash object;
  Error error;
  bool may_retry = true;  // false: the object itself is wrong, no peer can help
};

// A peer broke the rules. It sent wrong bytes of this object, and serves it no
// more; zero object: something else.
struct Misbehaved {
  PeerId peer;
  Hash object;
  std::string reason;
};

// A peer that is connected did not answer a request within the time for it; it
// is asked again later.
struct Stalled {
  PeerId peer;
  Hash object;
};

struct Effects {
  std::vector<Job> jobs;
  std::vector<Send> sends;
  std::map<Hash, Progress> progress;
  std::vector<Completed> completed;
  std::vector<Failed> failed;
  std::vector<Misbehaved> misbehaved;
  std::vector<Stalled> stalled;  // each peer and object once
};

}  // namespace skerry::exchange
