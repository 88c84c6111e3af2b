// The limits of an exchange, in one place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace skerry::exchange {

struct Config {
  std::uint64_t incarnation = 0;  // of this process, as in its control Hello

  // Asking. A chunk counts from its request until the disk has answered its write.
  std::size_t window_per_peer = 8;
  std::size_t window_bytes = 32 << 20;  // over all peers
  Duration request_timeout =
      std::chrono::seconds(30);  // since the request and the peer's last reply, whichever is later
  Duration peer_pause =
      std::chrono::seconds(2);  // before a peer that lacked a chunk or timed out is asked again
  Duration give_up = std::chrono::seconds(60);  // without any progress of an object

  // Serving (S15).
  std::size_t serve_per_peer = 16;  // requests read, or waiting to be; more are dropped
  std::size_t serve_reads = 8;      // reads at the disk at once, over all peers
};

}  // namespace skerry::exchange
