// SPDX-License-Identifier: Apache-2.0
// A hostile node. It enrols, says Hello, sends heartbeats and is granted
// leases. It sends whatever the protocol allows, about its own leases and
// others', with every field drawn. It trains nothing and serves nothing.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/authority.h"
#include "tests/simulation/coordinator_machine.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class Enemy final : public NetworkClient {
 public:
  // Joins by this token.
  Enemy(World& world, const CoordinatorMachine& coordinator, std::string name,
        pb::TokenCreated token, Dice dice);
  // Its machine is switched off; it does not come back.
  void leave();

  // NetworkClient
  void opened(Endpoint endpoint) override;
  void lost(Endpoint endpoint) override;
  void refused(Endpoint) override {}
  void received(Endpoint endpoint, const std::string& bytes) override;

 private:
  // Of whom the next word speaks: an expert as its holder knows it.
  struct About {
    std::string run;
    std::uint32_t expert = 0;
    std::uint64_t epoch = 0;
    std::uint32_t attempt = 0;
    Step step = 0;
    std::string head;
  };
  void live(std::uint64_t life);
  void greet();
  void beat();
  void say(pb::ControlRequest request);
  About about();
  void use_up_attempts();
  void flood();
  pb::ControlRequest lie();
  void lie_in(pb::Hello& hello);
  void lie_in(pb::Heartbeat& heartbeat);
  void lie_in(pb::Commit& commit, const About& about);
  void lie_in(pb::EngineReport& report, const About& about);
  std::string words(std::size_t most);
  std::string name_of_object(const About& about);

  World& world_;
  const CoordinatorMachine& coordinator_;
  std::string name_;
  Identity identity_;
  pb::TokenCreated token_;
  Dice dice_;
  bool ruins_ = false;  // may use up the attempts of an expert, which ends the run
  bool has_left_ = false;
  bool greeted_ = false;
  std::uint64_t lives_ = 0;  // connections that were greeted
  std::uint64_t incarnation_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t last_id_ = 0;
  std::uint64_t generation_ = 0;
  pb::Assignment assignment_;
};

}  // namespace skerry::simulation
