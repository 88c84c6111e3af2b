// SPDX-License-Identifier: Apache-2.0
// The daemon's real host in a simulation, with its exchange and its object
// store. Enrols first where its disk holds no certificate. Each of its rules is
// the host's: what it tells its core is so.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "daemon/host/host.h"
#include "protocol/token.h"
#include "tests/simulation/real_engines.h"
#include "tests/simulation/real_host.h"

namespace skerry::simulation {

class RealDaemon {
 public:
  struct Settings {
    std::string name;
    std::uint32_t slots = 1;
  };
  // What the coordinator has told this node that it accepted.
  struct Acknowledged {
    Hash head;
    Step step = 0;
  };

  // LIFETIME: `ground` and `token` outlive it.
  RealDaemon(RealGround& ground, const protocol::JoinToken& token, Settings settings);
  ~RealDaemon();

  // REQUIRES: !is_up().
  void start();
  // `machine`: it goes with its machine.
  void kill(bool machine);
  void pause(Duration length);
  void drain();
  bool is_up() const { return transport_ != nullptr; }
  bool crash_engine() { return engines_ != nullptr && engines_->crash_one(); }

  Duration next() const;
  // What has come by now, and what is due.
  void advance();

  const std::string& name() const { return settings_.name; }
  const std::string& key() const { return identity_.x25519_key(); }
  RealDisk& disk() { return disk_; }
  const std::map<ExpertId, Acknowledged>& acknowledged() const { return acknowledged_; }
  std::uint64_t stored() const { return stored_; }

 private:
  void launch();
  void on_enrol(const protocol::ClientEvent& event);
  void look(const daemon::Event& event, const daemon::Effects& effects);
  void ended();

  RealGround& ground_;
  const protocol::JoinToken& token_;
  Settings settings_;
  Dice dice_;
  RealClock clock_;
  protocol::Identity identity_;
  RealDisk disk_;
  bool is_enrolled_ = false;

  // Of this process, in the order in which they are made.
  std::unique_ptr<protocol::ClientTransport> transport_;
  std::unique_ptr<storage::ObjectStore> objects_;
  std::unique_ptr<RealEngines> engines_;
  std::unique_ptr<RealWorker> worker_;
  std::unique_ptr<daemon::Host> host_;
  std::uint64_t life_ = 0;
  Duration next_turn_{};
  Duration paused_until_{};
  Duration enrol_again_{};
  std::map<std::uint64_t, std::string> writes_;  // by ticket
  std::uint64_t persisted_ = 0;
  std::set<std::uint64_t> exited_;
  std::map<ExpertId, Acknowledged> acknowledged_;
  std::uint64_t stored_ = 0;
};

}  // namespace skerry::simulation
