// SPDX-License-Identifier: Apache-2.0
// The faults of a simulation: bursts drawn from the seed, some on half of the
// fleet at once, as real spot reclaims are. Then everything heals.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"

namespace skerry::simulation {

class Enemy;
class GossipEnemies;
class Stranger;  // a client that enrols and says nothing else

class Nemesis {
 public:
  // Without `only`, every fault that the seed plans; with it, those of these
  // numbers.
  Nemesis(Cluster& cluster, std::optional<std::set<std::uint32_t>> only);
  ~Nemesis();
  // Plans faults from now until then.
  void rage(Duration until);
  // Everything works again and everybody is back; nothing more goes wrong.
  void heal();

  // The numbers of those that took place.
  const std::vector<std::uint32_t>& took_place() const { return took_place_; }
  static const std::vector<std::string>& kinds();

 private:
  // Returns false where it finds nothing to do its harm to: tried again a
  // little later.
  using Cause = bool (Nemesis::*)();
  struct Fault {
    std::string kind;
    double weight = 1;
    Cause cause;
  };
  static const std::vector<Fault>& faults();
  void plan(std::size_t kind, std::uint32_t number, Duration delay);

  void attempt(std::size_t kind, std::uint32_t number, unsigned tries);
  DaemonMachine& any();
  std::vector<DaemonMachine*> some();  // one, a few, or half of the fleet
  void later(Duration delay, std::function<void()> action);
  void start_later(DaemonMachine& daemon, Duration delay);
  void start_coordinator_later(Duration delay);
  void forge_next(DaemonMachine& forger, DaemonMachine& victim);

  bool bad_weather();
  bool slow_link();
  bool cut_both();
  bool cut_one_way();
  bool reset();
  bool redial_silently();
  bool kill();
  bool vanish();
  bool wipe();
  bool pause();
  bool drain();
  bool notice();
  bool card_lost();
  bool copy();
  bool damage_state();
  bool engine_crash();
  bool engine_hang();
  bool disk_slow();
  bool disk_full();
  bool sync_fails();
  bool file_error();
  bool bit_flips();
  bool object_lost();
  bool transfers_fail();
  bool wall_clock();
  bool coordinator_kill();
  bool coordinator_vanish();
  bool coordinator_pause();
  bool coordinator_disk_stall();
  bool coordinator_disk_full();
  bool coordinator_sync_fails();
  bool coordinator_file_error();
  bool coordinator_restore();
  bool coordinator_damage();
  bool dataset_again();
  bool run_again();
  void keep_backup();
  bool forge();
  bool replay();
  bool spend_token();
  bool hostile_node();
  bool revoke();
  bool evict();
  bool cordon();
  bool run_pause();
  bool run_extend();
  bool forged_record();
  bool old_record();
  bool revoked_record();
  bool unknown_signer();
  bool two_contents();

  Cluster& cluster_;
  std::optional<std::set<std::uint32_t>> only_;
  Dice dice_;  // of the fault under way
  bool healed_ = false;
  // What a person or the platform has yet to do.
  std::vector<std::function<void()>> at_healing_;
  std::vector<std::uint32_t> took_place_;
  std::deque<CoordinatorMachine::Backup> backups_;  // of several days, any of which may be restored
  std::uint64_t restores_ = 0;
  std::unique_ptr<GossipEnemies> enemies_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
  std::uint64_t stranger_count_ = 0;
  std::vector<std::unique_ptr<Enemy>> hostile_;
};

}  // namespace skerry::simulation
