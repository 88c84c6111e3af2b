// SPDX-License-Identifier: Apache-2.0
// The coordinator's real host in a simulation, with its exchange and its object
// store.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/host/host.h"
#include "protocol/token.h"
#include "tests/simulation/real_host.h"

namespace skerry::simulation {

class RealCoordinator {
 public:
  // LIFETIME: `ground` outlives it.
  explicit RealCoordinator(RealGround& ground);
  ~RealCoordinator();

  // Puts a file on the disk, as if a person had uploaded it. REQUIRES:
  // !is_up().
  pb::ObjectRef add_file(const std::string& name, const std::string& bytes);
  // REQUIRES: !is_up().
  void start();
  void kill(bool machine);
  void pause(Duration length);
  bool is_up() const { return transport_ != nullptr; }

  Duration next() const;
  void advance();

  RealDisk& disk() { return disk_; }
  const storage::ObjectStore& objects() const { return *objects_; }  // REQUIRES: is_up()
  std::vector<coordinator::ExpertView> experts() const { return host_->core().experts(); }
  const protocol::Identity& identity() const { return identity_; }
  const protocol::Identity& admin() const { return admin_; }
  const protocol::JoinToken& token() const { return token_; }

 private:
  class DrawnRng final : public coordinator::Rng {
   public:
    explicit DrawnRng(Dice dice) : dice_(std::move(dice)) {}
    void fill(std::span<unsigned char> out) override {
      for (unsigned char& byte : out) byte = static_cast<unsigned char>(dice_.u64());
    }

   private:
    Dice dice_;
  };
  void ended();

  RealGround& ground_;
  Dice dice_;
  RealClock clock_;
  DrawnRng rng_;
  protocol::Identity identity_;
  protocol::Identity admin_;
  protocol::JoinToken token_;
  RealDisk disk_;

  // Of this process, in the order in which they are made.
  std::unique_ptr<protocol::ServerTransport> transport_;
  std::unique_ptr<storage::ObjectStore> objects_;
  std::unique_ptr<RealWorker> state_disk_;
  std::unique_ptr<RealWorker> object_disk_;
  std::unique_ptr<coordinator::Host> host_;
  Duration wake_{};
  Duration paused_until_{};
};

}  // namespace skerry::simulation
