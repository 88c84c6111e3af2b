// SPDX-License-Identifier: Apache-2.0
// The transport in memory, for tests and simulations. It has one virtual clock
// and one seed, and carries every message as bytes. The same seed, calls and
// faults give the same deliveries.
//
// poll() never waits for real time. If nothing is due, it runs the background
// function, which is the other side's host in tests of blocking clients. It
// then advances the virtual clock, by its timeout at most.
// THREADS: one for everything.
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
// stream would. `silent_loss`, duplicates and reordering break the contract of
// a stream on purpose; cores must tolerate them all the same.
struct Faults {
  Duration delay_min = std::chrono::milliseconds(1);
  Duration delay_max = std::chrono::milliseconds(1);
  double loss = 0;
  bool silent_loss = true;
  double duplicate = 0;
  // delayed by up to ten times delay_max; later messages overtake it
  double reorder = 0;
  double reset = 0;
};

class FakeNetwork {
 public:
  explicit FakeNetwork(std::uint64_t seed);
  ~FakeNetwork();
  FakeNetwork(const FakeNetwork&) = delete;
  FakeNetwork& operator=(const FakeNetwork&) = delete;

  // A server replaces an earlier one with the same identity, as a restart does.
  // LIFETIME: the network outlives both ends.
  std::unique_ptr<ServerTransport> make_server(const Identity& identity);
  std::unique_ptr<ClientTransport> make_client(const Identity& identity,
                                               std::string coordinator_key);

  void set_faults(const Faults& faults);
  // Cuts off or reconnects a client, by X25519 key. While it is cut off nothing
  // passes and no side is told. As the real transport's heartbeats do, this one
  // reports it after kSilenceDetection.
  void partition(const std::string& public_key, bool cut);
  // Breaks every connection of a client, as a NAT does.
  void reset(const std::string& public_key);

  Duration now() const;
  // RETURNS: the time before which nothing is due; Duration::max() if nothing
  // is under way.
  Duration next_due() const;
  void advance(Duration by);
  void set_background(std::function<void()> background);

  static constexpr Duration kSilenceDetection = std::chrono::seconds(4);

  struct State;  // private to fake_transport.cc

 private:
  std::shared_ptr<State> state_;
};

}  // namespace skerry::protocol
