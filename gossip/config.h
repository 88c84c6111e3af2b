// SPDX-License-Identifier: Apache-2.0
// Settings of gossip: round length, fan-out, record lifetimes, connections and
// per-peer limits. protocol/limits.h limits what other nodes may send.
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
  // Grows with each start of this node: incarnation_after() in own.h. A start
  // may find no trace of an earlier one whose clock was ahead. It then finds
  // its older records at peers and moves beyond them.
  std::uint64_t incarnation = 0;
  std::uint64_t seed = 1;  // of every draw

  // One round: an offer to `fanout` peers. News reaches 10,000 nodes in about
  // 16 rounds at 30 % loss.
  Duration round = std::chrono::seconds(2);
  std::size_t fanout = 2;
  unsigned offer_rounds = 16;  // a node offers a record for this many rounds after receiving it
  // for this many rounds, a node also sends it unasked to a peer whose offer
  // lacks it
  unsigned answer_rounds = 10;
  std::size_t offer_heads = 256;  // the newest ones
  // an older record is no news: other peers have it
  Duration news_age = std::chrono::seconds(60);
  unsigned digest_rounds = 16;       // an offer carries a digest this often
  unsigned coordinator_rounds = 16;  // the coordinator gets an offer this often…
  unsigned alone_rounds = 4;         // …or this often while no other peer sends anything

  // A node signs its records anew after a quarter of their lifetime. A change
  // of its own waits for update_least. It refuses another author's change that
  // follows the last one within Limits::accept_least, unless the author is the
  // coordinator.
  Duration node_lifetime = std::chrono::hours(24);
  Duration coordinator_lifetime = std::chrono::hours(30 * 24);
  Duration update_least = std::chrono::seconds(10);

  // Connections. Gossip asks for them; the host makes them.
  std::size_t peers_wanted = 6;
  std::size_t peers_most = 64;
  Duration dial_again = std::chrono::seconds(60);
  // dial one more peer, so that separated parts of a fleet meet
  Duration rotate = std::chrono::minutes(5);

  // Limits against peers that send too much (S15), per round.
  std::size_t peer_messages = 32;
  std::size_t peer_bytes = 512 << 10;  // sent to one peer
  std::size_t verifications = 1024;    // of all peers; peers offer the rest again
  Duration ban = std::chrono::minutes(10);
};

}  // namespace skerry::gossip
