// SPDX-License-Identifier: Apache-2.0
// How often gossip talks and for how long its records live. What others may
// send is limited in protocol/limits.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "protocol/skerry.pb.h"

namespace skerry::gossip {

struct Config {
  std::string coordinator_key;  // Ed25519: whose certificates and runs count
  pb::Certificate certificate;  // this node's; empty: this is the coordinator
  // Grows with each start of this node: incarnation_after (own.h). A start
  // whose disk tells nothing of an earlier one whose clock was ahead finds its
  // older records among the peers' and goes beyond them.
  std::uint64_t incarnation = 0;
  std::uint64_t seed = 1;  // of every draw

  // One round: an offer to `fanout` peers. News reaches 10,000 nodes in about
  // 16 rounds at 30 % loss.
  Duration round = std::chrono::seconds(2);
  std::size_t fanout = 2;
  unsigned offer_rounds = 16;     // a record is offered that long after it came
  unsigned answer_rounds = 10;    // and given unasked that long to whoever offers without it
  std::size_t offer_heads = 256;  // the newest ones
  Duration news_age =
      std::chrono::seconds(60);      // an older record that was lacking is no news: others have it
  unsigned digest_rounds = 16;       // a digest goes along that often
  unsigned coordinator_rounds = 16;  // the coordinator gets an offer that often…
  unsigned alone_rounds = 4;         // …or this often, of a node that hears no other peer

  // What this node signs is signed anew after a quarter of its lifetime. A
  // change waits for update_least; one of another author that follows within
  // Limits::accept_least is refused, but the coordinator's.
  Duration node_lifetime = std::chrono::hours(24);
  Duration coordinator_lifetime = std::chrono::hours(30 * 24);
  Duration update_least = std::chrono::seconds(10);

  // Connections. Gossip wishes for them, the host makes them.
  std::size_t peers_wanted = 6;
  std::size_t peers_most = 64;
  Duration dial_again = std::chrono::seconds(60);
  Duration rotate =
      std::chrono::minutes(5);  // one more dial, so that parts of a fleet that lost each other meet

  // Against peers that send much (S15), in each round.
  std::size_t peer_messages = 32;
  std::size_t peer_bytes = 512 << 10;  // given to one peer
  std::size_t verifications = 1024;    // of all peers; the rest comes again
  Duration ban = std::chrono::minutes(10);
};

}  // namespace skerry::gossip
