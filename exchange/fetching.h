// SPDX-License-Identifier: Apache-2.0
// The asking half of an exchange: what is wanted, whom to ask for it, and what
// became of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "exchange/availability.h"
#include "exchange/chunk_set.h"
#include "exchange/config.h"
#include "exchange/effects.h"
#include "exchange/pace.h"
#include "exchange/sources.h"

namespace skerry::exchange {

struct Want {
  Hash object;
  std::uint64_t manifest_bytes = 0;  // 0: not known
  std::vector<PeerId> from;          // who may have it, connected or not; none: any connected peer
  std::vector<std::string> parts;    // none: all
  // Asked only for chunks that no other connected peer has or will shortly
  // have; they need not be in `from`.
  std::vector<PeerId> last_resort = {};
};

class Fetching {
 public:
  Fetching(const Config& config, Effects& effects, Availability& availability);

  void peer_ready(const PeerId& peer, const Greeting& greeting, Now now);
  void peer_gone(const PeerId& peer, Now now);
  void replied(const PeerId& peer, pb::ChunkReply reply, Now now);
  void mapped(const PeerId& peer, const pb::ChunkMap& map, Now now);
  // The peer asked what is here of the object: it is about to receive it too.
  void wanted_too(const PeerId& peer, const Hash& object, Now now);
  void fetch(const Want& want, Now now);
  void cancel(const Hash& object, Now now);
  bool is_fetching(const Hash& object) const { return fetches_.contains(object); }
  // What is here of an object that is being fetched; null: it is not.
  const ChunkSet* held(const Hash& object) const;
  void opened(ObjectOpened answer, Now now);
  void written(const ChunkWritten& answer, Now now);
  void sealed(const ObjectSealed& answer);
  void tick(Now now);
  std::optional<Duration> wake_at() const;

 private:
  struct Request {
    Hash object;
    ChunkIndex chunk = 0;
    std::size_t bytes = 0;
    Speed::Mark mark;
  };
  struct Peer {
    Greeting greeting;
    std::map<std::uint64_t, Request> open;
    std::map<std::uint64_t, Request> late;  // given up, but perhaps still answered
    std::size_t bytes = 0;                  // of the open requests
    Duration replied{};
    bool is_silent = false;  // a request timed out, and nothing was answered since
    Speed speed;
  };
  // kManifest and kChunks wait for peers. They end once all chunks are written,
  // or after `give_up` without progress. kOpening and kSealing wait for the
  // disk, without a limit: it always answers.
  enum class Phase { kManifest, kOpening, kChunks, kSealing };
  struct Chunk {
    Hash hash;
    std::size_t bytes = 0;
    unsigned requests = 0;  // open, of several peers where the first ones are slow
    bool is_writing = false;
  };
  struct Fetch {
    Fetch(const Want& its_want, const Config& config)
        : want(its_want), sources(config, want.object) {}
    Want want;
    Phase phase = Phase::kManifest;
    std::vector<Chunk> chunks;  // by index
    std::unordered_map<Hash, ChunkIndex> index_of;
    std::vector<ChunkIndex> wanted;  // to be asked for, in no order
    std::size_t missing =
        0;  // chunks of the wanted parts that are not stored; before, the manifest
    std::size_t writing = 0;  // at the disk
    ChunkSet held;            // may be offered to others
    Sources sources;
    Progress progress;
    TransferStats stats;
    std::optional<Duration> first_asked;
    std::set<PeerId> liars;
    std::string trouble;  // the last thing that went wrong, for people
    Duration progress_at{};
    Duration news_at{};  // of progress anywhere among those who receive it
  };
  using Fetches = std::map<Hash, Fetch>;
  using OpenRequest = std::map<std::uint64_t, Request>::iterator;

  void add_source(Fetch& fetch, const PeerId& name, const Peer& peer, Now now);
  void set_silent(const PeerId& name, Peer& peer, bool is_silent);
  void ask_map(const PeerId& name, const Hash& object, Source& source, Now now);

  void pump(Now now);
  std::map<PeerId, std::size_t> shares(Now now) const;
  bool ask_one(const PeerId& name, Peer& peer, Now now);
  bool ask(const PeerId& name, Peer& peer, Fetch& fetch, ChunkIndex chunk, Now now);
  std::optional<Duration> free_from(const Peer& peer, const Fetch& fetch, ChunkIndex chunk,
                                    Now now) const;
  static bool is_late(const Peer& peer, const Fetch& fetch, ChunkIndex chunk);
  std::optional<std::size_t> choose(const Peer& peer, Fetch& fetch, Source& source, Now now);
  std::optional<ChunkIndex> choose_again(const PeerId& name, const Peer& peer, const Fetch& fetch,
                                         Now now);
  void look_again_at(Duration at) { look_at_ = look_at_ ? std::min(*look_at_, at) : at; }

  void came(const PeerId& name, Peer& peer, Fetches::iterator fetch, const Request& request,
            std::string bytes, Now now);
  void came_late(const PeerId& name, Peer& peer, pb::ChunkReply reply, Now now);
  Request close(Peer& peer, OpenRequest open);
  void close_all(const std::function<bool(const Request&)>& which);
  void close_others(const Hash& object, ChunkIndex chunk);
  void give_back(const Request& request, bool came);
  void forget(Fetches::iterator fetch);
  void fail_fetch(Fetches::iterator fetch, Error error, bool may_retry);
  void took_manifest(Fetch& fetch, std::string bytes);
  void took_chunk(Fetch& fetch, ChunkIndex chunk, std::string bytes);
  void lied(const PeerId& peer, Fetches::iterator fetch, const Request& request);
  void seal_if_whole(Fetch& fetch);
  static bool waits_for_peers(const Fetch& fetch);
  static std::string why_stuck(const Fetch& fetch);
  Duration deadline(const Peer& peer, const Request& request) const;
  Duration no_longer_late(const Peer& peer, const Request& request) const;

  const Config& config_;
  Effects& effects_;
  Availability& availability_;
  TokenBucket download_;
  Fetches fetches_;
  std::map<PeerId, Peer> peers_;
  std::uint64_t next_request_ = 0;
  std::size_t window_used_ = 0;      // bytes asked for or at the disk
  Hash last_asked_;                  // objects take turns
  std::optional<Duration> look_at_;  // when what was held back may be asked for
};

}  // namespace skerry::exchange
