// SPDX-License-Identifier: Apache-2.0
// The answering half of an exchange: requests wait their turn at the disk, a
// bounded number for each peer and in all. Peers take turns, and what was read
// goes out as the limit allows.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "exchange/config.h"
#include "exchange/effects.h"
#include "exchange/pace.h"

namespace skerry::exchange {

class Serving {
 public:
  Serving(const Config& config, Effects& effects)
      : config_(config), effects_(effects), upload_(config.upload_limit) {}

  void requested(const PeerId& peer, const pb::ChunkRequest& request, Now now);
  void read(ChunkRead answer, Now now);
  void disconnected(const PeerId& peer, Now now);
  // While some are named, requests for other objects wait.
  void serve_only(std::vector<Hash> objects, Now now);
  void tick(Now now) { pump(now); }
  std::optional<Duration> wake_at() const;

 private:
  struct Asker {
    std::set<std::uint64_t> open;  // requests without an answer
    std::deque<ReadChunk> waiting;
  };
  bool read_next();
  void pump(Now now);

  const Config& config_;
  Effects& effects_;
  TokenBucket upload_;
  std::vector<Hash> only_;  // empty: everything is served
  std::map<PeerId, Asker> askers_;
  PeerId last_;              // whose turn it was
  std::size_t reading_ = 0;  // jobs at the disk, those of peers that are gone included
  std::deque<Send> read_;    // to go out
};

}  // namespace skerry::exchange
