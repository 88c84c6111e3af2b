// SPDX-License-Identifier: Apache-2.0
// Moves objects over blob connections between any two parties; both sides run
// one of these. It owns no socket, disk, clock or thread: the host feeds it
// what happened and carries out its effects.
//
// Receiver-driven: whoever wants an object asks its peers which chunks they
// have, keeps a window of one-chunk requests open over them, and checks each
// chunk's hash before it is written. The rarest chunk goes first, the fastest
// peer gets the largest window. What was received is offered to others at once.
// A peer that sends wrong bytes is asked for that object no more; one that
// lacks a chunk or is silent is passed over for a while. An upload is a fetch
// by the other side. The transfer goes on where the disk says that it stopped.
//
// Fetching decides whom to ask by Sources (who has what) and Speed; Serving
// answers; Telling says what is here.
//
// Thread rule: one thread. Failure rule: a fetch ends with exactly one
// Completed or Failed, unless cancelled.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "exchange/config.h"
#include "exchange/effects.h"
#include "exchange/fetching.h"
#include "exchange/serving.h"
#include "exchange/telling.h"

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

  void answered(Answer answer, Now now);

  // Time has passed: at the latest at wake_at(), at any moment harmless.
  void tick(Now now);
  std::optional<Duration> wake_at() const;

  // Everything to do since the last call.
  Effects take_effects();
  bool has_effects() const;

 private:
  // Who waits: kNew for the peer's hello (nothing else of it is heard, nothing
  // is asked of it), kReady for nobody, kRefused for its disconnection: it
  // speaks another version.
  enum class PeerPhase { kNew, kReady, kRefused };

  void asked_for_map(const PeerId& peer, const Hash& object, Now now);
  void greeted(const PeerId& peer, const pb::BlobHello& hello, Now now);

  Config config_;
  Effects effects_;
  std::map<PeerId, PeerPhase> peers_;
  Telling telling_;
  Fetching fetching_;
  Serving serving_;
};

}  // namespace skerry::exchange
