// The asking half of an exchange.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "exchange/config.h"
#include "exchange/effects.h"

namespace skerry::exchange {

struct Want {
  Hash object;
  std::uint64_t manifest_bytes = 0;  // 0: not known
  std::vector<PeerId> from;          // who may have it, connected or not; none: whoever is connected
  std::vector<std::string> parts;    // none: all
};

class Fetching {
 public:
  Fetching(const Config& config, Effects& effects);

  void peer_ready(const PeerId& peer, Now now);
  void peer_gone(const PeerId& peer, Now now);
  void replied(const PeerId& peer, pb::ChunkReply reply, Now now);
  void fetch(const Want& want, Now now);
  void cancel(const Hash& object, Now now);
  bool is_fetching(const Hash& object) const { return fetches_.contains(object); }
  void opened(ObjectOpened answer, Now now);
  void written(const ChunkWritten& answer, Now now);
  void sealed(const ObjectSealed& answer);
  void tick(Now now);
  std::optional<Duration> wake_at() const;

 private:
  struct Request {
    Hash object;
    Hash chunk;
    Duration sent{};
  };
  struct Peer {
    std::map<std::uint64_t, Request> open;
    std::size_t bytes = 0;  // of the open requests
    Duration replied{};
  };
  // Who waits for whom: kManifest and kChunks for peers (exits: all chunks written, or give_up without progress), kOpening
  // and kSealing for the disk's answer, without a limit in time: the disk always answers.
  enum class Phase { kManifest, kOpening, kChunks, kSealing };
  struct Fetch {
    Want want;
    Phase phase = Phase::kManifest;
    std::unordered_map<Hash, std::size_t> sizes;  // of chunks not yet stored
    std::deque<Hash> pending;                     // to be asked for
    std::unordered_set<Hash> asked;
    std::unordered_set<Hash> writing;  // at the disk
    Progress progress;
    std::map<PeerId, Duration> paused_until;
    std::set<PeerId> liars;
    std::string trouble;  // the last thing that went wrong, for people
    Duration progress_at{};
  };
  using Fetches = std::map<Hash, Fetch>;

  void pump(Now now);
  std::size_t share(Now now) const;
  bool ask_one(const PeerId& name, Peer& peer, std::size_t share, Now now);
  bool may_ask(const Fetch& fetch, const PeerId& peer, Now now) const;
  Request close(Peer& peer, std::map<std::uint64_t, Request>::iterator open);
  void give_back(const Request& request, bool first);
  void forget(Fetches::iterator fetch);
  void fail_fetch(Fetches::iterator fetch, Error error, bool may_retry);
  void took_manifest(Fetch& fetch, std::string bytes);
  void took_chunk(Fetch& fetch, const Hash& chunk, std::string bytes);
  void lied(const PeerId& peer, Fetches::iterator fetch, const Request& request);
  void seal_if_whole(Fetch& fetch);
  static bool waits_for_peers(const Fetch& fetch);
  Duration deadline(const Peer& peer, const Request& request) const;

  const Config& config_;
  Effects& effects_;
  Fetches fetches_;
  std::map<PeerId, Peer> peers_;
  std::uint64_t next_request_ = 0;
  std::size_t window_used_ = 0;  // bytes
  Hash last_asked_;              // objects take turns
};

}  // namespace skerry::exchange
