// SPDX-License-Identifier: Apache-2.0
// The transport in memory, for tests and simulation: one virtual clock, one
// seed, and every message carried as bytes. The same seed, calls and faults
// give the same deliveries.
//
// Everything belongs to one thread. Poll never waits for real time: where
// nothing is due it runs the background function (the other side's host, in
// tests of blocking clients) and moves the virtual clock on, at most by its
// timeout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "protocol/identity.h"
#include "protocol/transport.h"

namespace skerry::protocol {

// Probabilities are per message. A lost message resets its connection, as a
// stream would, unless `silent_loss`, which breaks the contract of a stream on
// purpose; so do duplicates and reordering: cores must bear them all the same.
struct Faults {
  Duration delay_min = std::chrono::milliseconds(1);
  Duration delay_max = std::chrono::milliseconds(1);
  double loss = 0;
  bool silent_loss = true;
  double duplicate = 0;
  double reorder = 0;  // delayed by up to ten times delay_max without holding back what follows
  double reset = 0;
};

class FakeNetwork {
 public:
  explicit FakeNetwork(std::uint64_t seed);
  ~FakeNetwork();
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  // The network must outlive both. A server takes the place of an earlier one
  // with the same identity (a restart).
  std::unique_ptr<ServerTransport> make_server(const Identity& identity);
  std::unique_ptr<ClientTransport> make_client(const Identity& identity,
                                               std::string coordinator_key);

  void set_faults(const Faults& faults);
  // Cuts a client off (nothing passes, nobody is told: heartbeats of the real
  // transport report it after kSilenceDetection) or heals it. By X25519 key.
  void partition(const std::string& public_key, bool cut);
  // Breaks every connection of a client, as a NAT does.
  void reset(const std::string& public_key);

  Duration now() const;
  // Nothing is due before this; Duration::max() where nothing is under way at
  // all.
  Duration next_due() const;
  void advance(Duration by);
  void set_background(std::function<void()> background);

  static constexpr Duration kSilenceDetection = std::chrono::seconds(4);

  struct State;  // private to fake_transport.cc

 private:
  std::shared_ptr<State> state_;
};

}  // namespace skerry::protocol
