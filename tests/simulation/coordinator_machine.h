// SPDX-License-Identifier: Apache-2.0
// The coordinator's machine in a simulation: its disk, and on it the real host
// with its exchange and its object store. Watchers are told of what the host
// does.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/host/backup.h"
#include "coordinator/host/host.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/gossip_ground.h"
#include "tests/simulation/inbox.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/transports.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class CoordinatorMachine final {
 public:
  struct Backup {
    std::shared_ptr<const Disk> disk;
    std::set<Hash> damaged;
  };
  enum class Death {
    kKilled,    // SIGKILL
    kVanished,  // with its machine: what was not synced may be lost
  };

  CoordinatorMachine(World& world, coordinator::Config config);
  ~CoordinatorMachine();

  void start();
  void kill(Death death = Death::kKilled);
  // SIGSTOP and SIGCONT.
  void pause(Duration length);
  bool is_up() const { return server_ != nullptr; }
  bool is_paused() const { return inbox_.is_closed(); }
  std::uint64_t life() const { return life_; }
  // This thread's CPU time in the host, measured from now on.
  void measure() { measures_ = true; }
  std::chrono::nanoseconds host_time() const { return host_time_; }

  Backup backup();
  // REQUIRES: !is_up(). The next start is from the backup, its generation
  // raised; it may be restored again.
  void restore(const Backup& backup);
  // Bytes of one stored object are lost. RETURNS: which; none: there is none.
  std::optional<Hash> damage_object(Dice& dice);
  // What is lost still comes back, as by a person who has it.
  void bring_back_objects();
  // A write of the core's batches fails, or one of an object; the process ends
  // by it.
  void fail_sync(Dice& dice);
  void fail_file(Dice& dice);

  Disk& disk() { return disk_; }
  MachineClock& clock() { return clock_; }
  Now now() const { return clock_.now(); }
  std::int64_t wall_ms() const { return now().unix_ms; }
  // None: it is down.
  const coordinator::Core* core() const { return host_ ? &host_->core() : nullptr; }
  // What gossip has told it; none: it is down, or nobody gossips.
  const gossip::Table* records() const;
  const Durable& durable() const { return disk_.kept.mirror; }
  const std::optional<coordinator::FirstStart>& first_start() const { return first_start_; }
  const Identity& admin() const { return admin_; }

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
  void came(protocol::ServerEvent event);
  void told(const protocol::ServerEvent& event);
  template <class Work>
  void run(const Work& work);
  void turn();
  void looked(const coordinator::Core& core, const coordinator::Event* event,
              const coordinator::Effects& effects);
  void sends(const coordinator::Send& message);
  void check_stored(const coordinator::ObjectStored& event);
  bool is_stored(const Hash& manifest) const;
  std::string enrolling(const pb::EnrolRequest& request, const std::string& key) const;
  void ended(Death death);
  std::shared_ptr<const Disk> copied(Disk& from, const std::optional<coordinator::Restore>& restore,
                                     std::set<Hash>& damaged);

  World& world_;
  coordinator::Config config_;
  SimulatedSigner signer_{coordinator_identity()};
  SimulatedAuthority authority_;
  Dice dice_;
  Identity admin_ = identity_of("admin");
  MachineClock clock_;
  Disk disk_;
  std::set<Hash> damaged_;  // objects that its disk lost bytes of, or seemed to

  // Of this process, in the order in which they are made.
  std::uint64_t life_ = 0;
  std::unique_ptr<DrawnRng> rng_;
  std::unique_ptr<ServerEnd> server_;
  std::unique_ptr<storage::ObjectStore> objects_;
  std::unique_ptr<TimedWorker> state_disk_;
  std::unique_ptr<TimedWorker> object_disk_;
  std::unique_ptr<coordinator::Host> host_;
  std::unique_ptr<Alarm> alarm_;
  Inbox inbox_;             // closed while it stands still
  Duration due_{};          // when it would have come round at the latest
  bool has_begun_ = false;  // watchers know of this start
  bool is_late_ = false;    // it hears what came while it stood still
  std::map<ConnectionId, std::string> keys_;
  std::map<ConnectionId, pb::EnrolRequest> enrols_;
  std::vector<coordinator::ExpertView> experts_;  // after the last step
  std::optional<coordinator::FirstStart> first_start_;
  bool measures_ = false;
  std::chrono::nanoseconds host_time_{};
};

}  // namespace skerry::simulation
