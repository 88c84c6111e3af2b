// SPDX-License-Identifier: Apache-2.0
// Moves objects over blob connections between any two parties; both sides run
// one of these. It owns no socket, disk, clock or thread: the host feeds it
// what happened and carries out its effects.
//
// The receiver drives. It asks its peers which chunks they have, and keeps a
// window of one-chunk requests open over them. It checks each chunk's hash
// before it writes the chunk, and offers the chunk to others at once. The
// rarest chunk goes first; the fastest peer gets the largest window.
//
// A peer that sends wrong bytes is not asked for that object again. A peer that
// lacks a chunk or is silent is passed over for a while. An upload is a fetch
// by the other side. An interrupted transfer goes on from what is on the disk.
//
// Fetching chooses peers by Sources (who has what) and Speed; Serving answers;
// Availability tells peers which chunks are here.
//
// ON FAILURE: a fetch ends with exactly one Completed or Failed, unless it is
// cancelled.
// THREADS: one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "exchange/availability.h"
#include "exchange/config.h"
#include "exchange/effects.h"
#include "exchange/fetching.h"
#include "exchange/serving.h"

namespace skerry::exchange {

class Exchange {
 public:
  explicit Exchange(const Config& config);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // A fresh connection; one that it replaces must have been disconnected. Sends
  // the hello.
  void connected(const PeerId& peer, Now now);
  void disconnected(const PeerId& peer, Now now);
  bool is_connected(const PeerId& peer) const { return peers_.contains(peer); }
  // `message` was validated. From a peer that is not connected: ignored.
  void received(const PeerId& peer, pb::BlobMessage message, Now now);

  // The same object again adds peers, forgives those it had given up, and goes
  // on.
  void fetch(const Want& want, Now now);
  // No Completed or Failed follows. What is stored stays.
  void cancel(const Hash& object, Now now);
  bool is_fetching(const Hash& object) const { return fetching_.is_fetching(object); }
  // While some are named, chunks of other objects wait: this end may have
  // little time left. Empty: everything is served.
  void serve_only(std::vector<Hash> objects, Now now) {
    serving_.serve_only(std::move(objects), now);
  }

  void answered(Answer answer, Now now);

  // Time has passed: at the latest at wake_at(), at any moment harmless.
  void tick(Now now);
  std::optional<Duration> wake_at() const;

  // Everything to do since the last call.
  Effects take_effects();
  bool has_effects() const;

 private:
  // kNew waits for the peer's hello, and drops all other messages. kReady waits
  // for nothing. kRefused speaks another version, and waits for its
  // disconnection.
  enum class PeerPhase { kNew, kReady, kRefused };

  void asked_for_map(const PeerId& peer, const Hash& object, Now now);
  void greeted(const PeerId& peer, const pb::BlobHello& hello, Now now);

  Config config_;
  Effects effects_;
  std::map<PeerId, PeerPhase> peers_;
  Availability availability_;
  Fetching fetching_;
  Serving serving_;
};

}  // namespace skerry::exchange
