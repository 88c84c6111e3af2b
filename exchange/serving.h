// The answering half of an exchange: requests wait their turn at the disk, a bounded number for each peer and in all.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "exchange/config.h"
#include "exchange/effects.h"

namespace skerry::exchange {

class Serving {
 public:
  Serving(const Config& config, Effects& effects) : config_(config), effects_(effects) {}

  void requested(const PeerId& peer, const pb::ChunkRequest& request);
  void read(ChunkRead answer);
  void disconnected(const PeerId& peer);

 private:
  void pump();

  const Config& config_;
  Effects& effects_;
  std::map<PeerId, std::set<std::uint64_t>> open_;  // requests without an answer
  std::deque<ReadChunk> waiting_;
  std::size_t reading_ = 0;  // jobs at the disk, those of peers that are gone included
};

}  // namespace skerry::exchange
