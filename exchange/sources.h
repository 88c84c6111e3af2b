// SPDX-License-Identifier: Apache-2.0
// Who may be asked for the chunks of one object, and who has which: what an
// exchange knows of its connected peers for one fetch. It decides nothing and
// sends nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "exchange/chunk_set.h"
#include "exchange/config.h"
#include "exchange/jobs.h"
#include "protocol/skerry.pb.h"

namespace skerry::exchange {

// What the hello told.
struct Greeting {
  std::uint64_t incarnation = 0;
  bool speaks_maps = false;  // of others nobody knows what they have until they are asked for it
};

struct Source {
  Greeting greeting;
  bool is_last_resort = false;
  Duration since{};
  Duration map_asked{};
  bool has_answered = false;  // a map came
  bool is_receiving = false;  // and more will come
  ChunkSet has;
  Duration paused_until{};
  unsigned misses = 0;                     // in a row
  std::map<ChunkIndex, Duration> lacking;  // asked for in vain; until when not to ask again
  bool is_dry = false;                     // has nothing that is wanted, until news come
  bool is_silent = false;                  // left the last request unanswered, of any object
};

class Sources {
 public:
  Sources(const Config& config, const Hash& object) : config_(config), object_(object) {}

  void set_chunks(std::size_t count);  // with the manifest; 1 until that is known

  Source& add(const PeerId& peer, const Greeting& greeting, bool is_last_resort, Now now);
  void remove(const PeerId& peer);
  void clear() { sources_.clear(), holders_.assign(holders_.size(), 0); }
  Source* find(const PeerId& peer);
  std::map<PeerId, Source>& all() { return sources_; }
  const std::map<PeerId, Source>& all() const { return sources_; }
  // True: the peer has chunks that it had not.
  bool take(Source& source, const pb::ChunkMap& map);
  void missed(Source& source, ChunkIndex chunk, Now now);
  // When to ask for the map again: nothing came, or what came may have changed
  // since.
  std::optional<Duration> map_due(const Source& source) const;
  // What time undoes: pauses, chunks that a peer lacked. And the next moment
  // for either.
  void tick(Now now);
  std::optional<Duration> wake_at() const;

  bool may_have(const Source& source, ChunkIndex chunk, Now now) const;
  // May be had from a source that answers.
  bool is_within_reach(ChunkIndex chunk, Now now) const;
  unsigned holders(ChunkIndex chunk) const {
    return holders_[chunk];
  }  // known ones, but last resorts
  // In which order chunks that are equally rare are asked for: each party has
  // another.
  std::uint64_t order_of(ChunkIndex chunk) const { return score(config_.incarnation, chunk); }
  // How many other receivers of the object ask a last resort for this chunk
  // before this one does; 0: it is our turn. Each of them passes it on. None:
  // another peer has it, and is not silent.
  std::optional<unsigned> turn_at_last_resort(ChunkIndex chunk, Now now) const;
  // Maps of others are still to come, and worth a moment.
  std::optional<Duration> others_answer_by(Now now) const;
  // No peer that is connected has it, whatever else is with that peer.
  bool nobody_has(ChunkIndex chunk) const;
  std::optional<PeerId> last_seen_at(ChunkIndex chunk) const;

 private:
  bool is_usable(const Source& source, Now now) const { return source.paused_until <= now.boot; }
  std::uint64_t score(std::uint64_t party, ChunkIndex chunk) const;
  void count(const Source& source, int by);

  const Config& config_;
  Hash object_;
  std::map<PeerId, Source> sources_;
  std::vector<std::uint32_t> holders_ = {0};
  std::unordered_map<ChunkIndex, PeerId> last_seen_;  // of chunks that left with a peer
};

}  // namespace skerry::exchange
