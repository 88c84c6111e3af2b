// SPDX-License-Identifier: Apache-2.0
// The limits of an exchange, in one place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace skerry::exchange {

struct Config {
  // Of this process, as in its control Hello. Parties that receive the same
  // object share it out by these.
  std::uint64_t incarnation = 0;

  // Bytes a second, 0: no limit.
  std::uint64_t upload_limit = 0;
  std::uint64_t download_limit = 0;

  // Asking. A chunk counts from its request until the disk has answered its
  // write.
  std::size_t window_per_peer = 8;      // requests; in bytes as much as its speed calls for
  std::size_t window_bytes = 32 << 20;  // over all peers
  Duration request_timeout =
      std::chrono::seconds(30);  // since the request and the peer's last reply, whichever is later
  Duration peer_pause =
      std::chrono::seconds(2);  // before a peer that lacked a chunk or timed out is asked again
  Duration give_up = std::chrono::seconds(60);  // without any progress of an object

  // Maps of who has what.
  Duration map_interval = std::chrono::milliseconds(50);  // between updates, at least
  Duration map_wait =
      std::chrono::milliseconds(500);  // for others' maps, before a last resort is asked for chunks
  Duration map_refresh =
      std::chrono::seconds(10);  // a map that says neither all nor more is asked for again
  Duration turn =
      std::chrono::seconds(2);  // without news of others, before the next may ask a last resort

  // Serving (S15).
  std::size_t serve_per_peer = 16;  // requests read, or waiting to be; more are dropped
  std::size_t serve_reads = 8;      // reads at the disk at once, over all peers
};

}  // namespace skerry::exchange
