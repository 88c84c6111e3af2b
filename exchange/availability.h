// SPDX-License-Identifier: Apache-2.0
// Tells peers which chunks are here: at once when they ask, and in short
// updates while the object is still being received.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "exchange/chunk_set.h"
#include "exchange/config.h"
#include "exchange/effects.h"

namespace skerry::exchange {

class Availability {
 public:
  Availability(const Config& config, Effects& effects) : config_(config), effects_(effects) {}

  // Of an object that is not being received: the disk knows.
  void find(const PeerId& peer, const Hash& object);
  // `held` as in tell, where a fetch began meanwhile; otherwise null.
  void found(const ObjectFound& answer, const ChunkSet* held);
  // Of an object that is being received, of which `held` is here. Updates
  // follow until it ended or the peer has gone.
  void tell(const PeerId& peer, const Hash& object, const ChunkSet& held);
  void gained(const Hash& object, ChunkIndex chunk, Now now);
  // Received, given up or cancelled: no more will come.
  void ended(const Hash& object, const ChunkSet& held);
  void disconnected(const PeerId& peer);
  void tick(Now now);
  std::optional<Duration> wake_at() const;

 private:
  struct Audience {
    std::set<PeerId> peers;
    std::vector<ChunkIndex> news;
    Duration told{};
  };
  pb::ChunkMap& add_map(const PeerId& peer, const Hash& object);
  void spread(const Hash& object, Audience& audience, Now now);

  const Config& config_;
  Effects& effects_;
  std::map<PeerId, std::size_t> finding_;  // jobs without an answer
  std::map<Hash, Audience> audiences_;
};

}  // namespace skerry::exchange
