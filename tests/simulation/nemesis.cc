// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/nemesis.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "tests/simulation/enemy.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/gossip_enemies.h"

namespace skerry::simulation {
namespace {
constexpr std::uint64_t kRoom = 1ULL << 40;
constexpr std::size_t kGossipFaults = 5;  // the last of faults(), but for the notice
constexpr std::size_t kBackups = 3;
}  // namespace

// Enrols by a token, twice, and is never heard again.
class Stranger final : public NetworkClient {
 public:
  Stranger(World& world, std::string name, pb::TokenCreated token)
      : world_(world),
        name_(std::move(name)),
        identity_(identity_of(name_)),
        token_(std::move(token)) {
    world_.network.dial(name_, Endpoint::kEnrol, identity_.x25519_key, *this);
  }
  void opened(Endpoint) override {
    for (int i = 0; i < 2; ++i) {
      world_.network.send_to_server(name_, Endpoint::kEnrol,
                                    enrol_request(identity_, name_, token_).SerializeAsString());
    }
  }
  void lost(Endpoint) override {}
  void refused(Endpoint) override {}
  void received(Endpoint, const std::string&) override {}

 private:
  World& world_;
  std::string name_;
  Identity identity_;
  pb::TokenCreated token_;
};

const std::vector<Nemesis::Fault>& Nemesis::faults() {
  static const std::vector<Fault> kFaults = {
      {"bad_weather", 3, &Nemesis::bad_weather},
      {"slow_link", 2, &Nemesis::slow_link},
      {"partition", 2, &Nemesis::cut_both},
      {"one_way_partition", 2, &Nemesis::cut_one_way},
      {"reset", 2, &Nemesis::reset},
      {"silent_redial", 1.5, &Nemesis::redial_silently},
      {"daemon_kill", 3, &Nemesis::kill},
      {"machine_gone", 1.5, &Nemesis::vanish},
      {"disk_lost", 1.5, &Nemesis::wipe},
      {"daemon_pause", 2.5, &Nemesis::pause},
      {"drain", 1.5, &Nemesis::drain},
      {"same_key_twice", 1.5, &Nemesis::copy},
      {"state_damaged", 1, &Nemesis::damage_state},
      {"engine_crash", 2, &Nemesis::engine_crash},
      {"engine_hang", 1.5, &Nemesis::engine_hang},
      {"disk_slow", 1.5, &Nemesis::disk_slow},
      {"disk_full", 1.5, &Nemesis::disk_full},
      {"sync_fails", 1.5, &Nemesis::sync_fails},
      {"file_error", 1.5, &Nemesis::file_error},
      {"bit_flips", 1.5, &Nemesis::bit_flips},
      {"object_lost", 1.5, &Nemesis::object_lost},
      {"transfers_fail", 1.5, &Nemesis::transfers_fail},
      {"wall_clock", 1, &Nemesis::wall_clock},
      {"coordinator_kill", 3, &Nemesis::coordinator_kill},
      {"coordinator_machine_gone", 1.5, &Nemesis::coordinator_vanish},
      {"coordinator_pause", 1.5, &Nemesis::coordinator_pause},
      {"coordinator_disk_stall", 1.5, &Nemesis::coordinator_disk_stall},
      {"coordinator_disk_full", 1.5, &Nemesis::coordinator_disk_full},
      {"coordinator_sync_fails", 1.5, &Nemesis::coordinator_sync_fails},
      {"coordinator_file_error", 1, &Nemesis::coordinator_file_error},
      {"coordinator_restore", 1, &Nemesis::coordinator_restore},
      {"coordinator_damage", 1.5, &Nemesis::coordinator_damage},
      {"dataset_again", 1.5, &Nemesis::dataset_again},
      {"run_again", 1.5, &Nemesis::run_again},
      {"forged_word", 2.5, &Nemesis::forge},
      {"replayed_commit", 1.5, &Nemesis::replay},
      {"spent_token", 1.5, &Nemesis::spend_token},
      {"hostile_node", 1.5, &Nemesis::hostile_node},
      {"revoked_key", 1, &Nemesis::revoke},
      {"evict", 1, &Nemesis::evict},
      {"cordon", 1, &Nemesis::cordon},
      {"run_pause", 1, &Nemesis::run_pause},
      {"run_extend", 1, &Nemesis::run_extend},
      // Of gossip: drawn apart, so that they change no other schedule.
      {"forged_record", 1, &Nemesis::forged_record},
      {"old_record", 1, &Nemesis::old_record},
      {"revoked_record", 1, &Nemesis::revoked_record},
      {"unknown_signer", 1, &Nemesis::unknown_signer},
      {"two_contents", 1, &Nemesis::two_contents},
      // Of the platform: drawn apart as well.
      {"notice", 1, &Nemesis::notice},
      // Of machines whose leases hold several cards: drawn apart as well.
      {"card_lost", 1, &Nemesis::card_lost},
  };
  return kFaults;
}

const std::vector<std::string>& Nemesis::kinds() {
  static const std::vector<std::string> kKinds = [] {
    std::vector<std::string> names;
    for (const Fault& fault : faults()) names.push_back(fault.kind);
    return names;
  }();
  return kKinds;
}

Nemesis::Nemesis(Cluster& cluster, std::optional<std::set<std::uint32_t>> only)
    : cluster_(cluster),
      only_(std::move(only)),
      dice_(cluster.options().seed, "fault"),
      enemies_(std::make_unique<GossipEnemies>(cluster)) {}
Nemesis::~Nemesis() = default;

void Nemesis::rage(Duration until) {
  std::vector<double> weights;
  for (const Fault& fault : faults()) weights.push_back(fault.weight);
  const std::size_t of_cards = weights.size() - 1, of_platform = of_cards - 1;
  weights.resize(of_platform - kGossipFaults);
  const Duration now = cluster_.world().timeline.now();
  std::uint32_t number = 0;
  for (const PlannedFault& planned : plan_faults(cluster_.options().seed, weights, now, until)) {
    plan(planned.kind, planned.number, planned.at - now);
    number = planned.number + 1;
  }
  Dice platform(cluster_.options().seed, "platform plan");
  const Duration first = now + platform.duration({}, seconds(60));
  for (Duration at = first; at < until; at += platform.duration(seconds(20), seconds(90)))
    plan(of_platform, number++, at - now);
  if (cluster_.options().cards_per_expert != 1) {
    Dice cards(cluster_.options().seed, "cards plan");
    for (Duration at = now + cards.duration({}, seconds(90)); at < until;
         at += cards.duration(seconds(20), seconds(120)))
      plan(of_cards, number++, at - now);
  }
  if (!cluster_.options().gossips) return;
  Dice dice(cluster_.options().seed, "gossip plan");
  for (Duration at = now; at < until; at += dice.duration(seconds(5), seconds(25)))
    plan(weights.size() + dice.between(0, kGossipFaults - 1), number++, at - now);
}

void Nemesis::plan(std::size_t kind, std::uint32_t number, Duration delay) {
  if (only_ && !only_->contains(number)) return;
  later(delay, [this, kind, number] { attempt(kind, number, 0); });
}

void Nemesis::attempt(std::size_t kind, std::uint32_t number, unsigned tries) {
  constexpr unsigned kTries = 5;
  const Fault& fault = faults()[kind];
  dice_ = Dice(cluster_.options().seed, "fault", number);
  cluster_.world().trace.line([&] { return text("# ", number, " ", fault.kind); });
  if ((this->*fault.cause)()) {
    ++cluster_.world().faults[fault.kind];
    cluster_.world().trace.add("nemesis", fault.kind);
    took_place_.push_back(number);
  } else if (tries < kTries) {
    later(seconds(2), [this, kind, number, tries] { attempt(kind, number, tries + 1); });
  }
}

void Nemesis::later(Duration delay, std::function<void()> action) {
  cluster_.world().timeline.after(delay, [this, action = std::move(action)] {
    if (!healed_) action();
  });
}

DaemonMachine& Nemesis::any() { return cluster_.daemon(dice_.between(0, cluster_.daemons() - 1)); }

std::vector<DaemonMachine*> Nemesis::some() {
  const std::uint64_t fleet = cluster_.daemons();
  const std::uint64_t count = dice_.chance(0.7)   ? 1
                              : dice_.chance(0.5) ? (fleet + 1) / 2
                                                  : dice_.between(1, fleet);
  std::set<std::uint64_t> drawn;
  while (drawn.size() < count) drawn.insert(dice_.between(0, fleet - 1));
  std::vector<DaemonMachine*> out;
  for (const std::uint64_t index : drawn) out.push_back(&cluster_.daemon(index));
  return out;
}

void Nemesis::start_later(DaemonMachine& daemon, Duration delay) {
  later(delay, [this, &daemon] {
    if (!daemon.is_up()) daemon.start(cluster_.token());
  });
}

// ---- Network ----

bool Nemesis::bad_weather() {
  const double loss = dice_.chance(0.7) ? dice_.real(0, 0.3) : 0;
  const double duplicate = dice_.chance(0.7) ? dice_.real(0, 0.5) : 0;
  const double reorder = dice_.chance(0.7) ? dice_.real(0, 0.5) : 0;
  const Duration lasts = dice_.duration(seconds(2), seconds(30));
  for (DaemonMachine* daemon : some()) {
    Weather& weather = cluster_.world().network.weather(daemon->name());
    weather.loss = loss;
    weather.duplicate = duplicate;
    weather.reorder = reorder;
    weather.delay_max = dice_.duration(milliseconds(5), milliseconds(300));
    later(lasts, [this, daemon] { cluster_.world().network.heal(daemon->name()); });
  }
  return true;
}

bool Nemesis::slow_link() {
  for (DaemonMachine* daemon : some()) {
    Weather& weather = cluster_.world().network.weather(daemon->name());
    weather.delay_min = dice_.duration(milliseconds(50), seconds(1));
    weather.delay_max = weather.delay_min + dice_.duration({}, seconds(4));
    later(dice_.duration(seconds(2), seconds(30)),
          [this, daemon] { cluster_.world().network.heal(daemon->name()); });
  }
  return true;
}

bool Nemesis::cut_both() {
  const Duration lasts = dice_.duration(milliseconds(500), seconds(25));
  for (DaemonMachine* daemon : some()) {
    cluster_.world().trace.line([&] { return daemon->name() + " is cut off"; });
    cluster_.world().network.cut(daemon->name(), true, true);
    later(lasts, [this, daemon] { cluster_.world().network.heal(daemon->name()); });
  }
  return true;
}

bool Nemesis::cut_one_way() {
  const bool to_server = dice_.chance(0.5);
  const Duration lasts = dice_.duration(milliseconds(500), seconds(25));
  for (DaemonMachine* daemon : some()) {
    cluster_.world().trace.line(
        [&] { return text(daemon->name(), to_server ? " reaches nobody" : " receives nothing"); });
    cluster_.world().network.cut(daemon->name(), to_server, !to_server);
    later(lasts, [this, daemon] { cluster_.world().network.heal(daemon->name()); });
  }
  return true;
}

bool Nemesis::reset() {
  for (DaemonMachine* daemon : some()) {
    cluster_.world().network.reset(daemon->name());
    if (cluster_.world().gossip != nullptr) cluster_.world().gossip->mesh.reset(daemon->name());
  }
  return true;
}

bool Nemesis::redial_silently() {
  for (DaemonMachine* daemon : some()) cluster_.world().network.redial_silently(daemon->name());
  return true;
}

// ---- Daemons ----

bool Nemesis::kill() {
  for (DaemonMachine* daemon : some()) {
    daemon->kill(DaemonMachine::Death::kKilled);
    start_later(*daemon,
                dice_.duration(milliseconds(10), dice_.chance(0.5) ? seconds(2) : seconds(40)));
  }
  return true;
}

bool Nemesis::vanish() {
  for (DaemonMachine* daemon : some()) {
    daemon->kill(DaemonMachine::Death::kVanished);
    start_later(*daemon, dice_.duration(seconds(1), seconds(40)));
  }
  return true;
}

bool Nemesis::wipe() {
  for (DaemonMachine* daemon : some()) {
    daemon->kill(dice_.chance(0.5) ? DaemonMachine::Death::kKilled
                                   : DaemonMachine::Death::kVanished);
    if (!daemon->is_up()) daemon->wipe_disk();
    start_later(*daemon, dice_.duration(milliseconds(10), seconds(20)));
  }
  return true;
}

bool Nemesis::pause() {
  for (DaemonMachine* daemon : some())
    daemon->pause(dice_.duration(milliseconds(100), seconds(20)));
  return true;
}

bool Nemesis::drain() {
  for (DaemonMachine* daemon : some()) {
    if (!daemon->is_up()) continue;
    daemon->drain();
    if (dice_.chance(0.2)) later(dice_.duration({}, seconds(3)), [daemon] { daemon->drain(); });
    later(dice_.duration(seconds(5), seconds(40)), [this, daemon] {
      if (!daemon->is_up()) daemon->start(cluster_.token());
    });
  }
  return true;
}

// The platform ends a machine when it said it would, or only advises to expect
// that and takes its word back.
bool Nemesis::notice() {
  for (DaemonMachine* daemon : some()) {
    if (!daemon->is_up()) continue;
    if (dice_.chance(0.3)) {
      daemon->notice(std::nullopt, "expect the end");
      const auto is_over = [daemon] { daemon->notice(std::nullopt, ""); };
      at_healing_.emplace_back(is_over);
      later(dice_.duration(seconds(1), seconds(30)), is_over);
      continue;
    }
    const Duration left = dice_.duration({}, dice_.chance(0.5) ? seconds(5) : seconds(60));
    daemon->notice(left, "the machine ends");
    const bool loses_disk = dice_.chance(0.5);
    const Duration comes_back = dice_.duration(milliseconds(10), seconds(20));
    later(left, [this, daemon, loses_disk, comes_back] {
      daemon->kill(DaemonMachine::Death::kVanished);
      if (loses_disk && !daemon->is_up()) daemon->wipe_disk();
      start_later(*daemon, comes_back);
    });
    at_healing_.emplace_back([daemon, life = daemon->life()] {
      if (daemon->life() == life) daemon->kill(DaemonMachine::Death::kVanished);
    });
  }
  return true;
}

// A second process with the same key, from a copy of the disk. The first one
// learns that it was replaced, and may take its place back.
bool Nemesis::copy() {
  DaemonMachine& daemon = any();
  if (!daemon.is_enrolled() || daemon.has_failed()) return false;
  DaemonMachine& copy = cluster_.copy(daemon);
  if (dice_.chance(0.3))
    daemon.kill(dice_.chance(0.5) ? DaemonMachine::Death::kKilled
                                  : DaemonMachine::Death::kVanished);
  copy.start(cluster_.token());
  later(dice_.duration(seconds(1), seconds(25)),
        [&copy] { copy.kill(DaemonMachine::Death::kKilled); });
  later(dice_.duration(seconds(1), seconds(35)), [this, &daemon] {
    if (daemon.is_up()) return;
    daemon.clear_failure();
    daemon.start(cluster_.token());
  });
  return true;
}

bool Nemesis::damage_state() {
  DaemonMachine& daemon = any();
  if (!daemon.is_up()) return false;
  daemon.kill(DaemonMachine::Death::kKilled);
  daemon.damage_state();
  start_later(daemon, dice_.duration(milliseconds(10), seconds(2)));
  later(dice_.duration(seconds(5), seconds(20)), [this, &daemon] {
    if (daemon.is_up() || !daemon.has_failed()) return;
    daemon.wipe_disk();
    daemon.clear_failure();
    daemon.start(cluster_.token());
  });
  return true;
}

// Its person brings it back and starts the daemon again.
bool Nemesis::card_lost() {
  DaemonMachine* loser = nullptr;
  for (std::size_t i = 0; i < cluster_.daemons() && loser == nullptr; ++i) {
    if (cluster_.daemon(i).lose_card(dice_)) loser = &cluster_.daemon(i);
  }
  if (loser == nullptr) return false;
  const auto again = [loser] {
    if (loser->bring_back_cards()) loser->kill(DaemonMachine::Death::kKilled);
  };
  at_healing_.emplace_back(again);
  const Duration wait = dice_.duration(seconds(5), seconds(60));
  later(wait, again);
  start_later(*loser, wait + milliseconds(500));
  return true;
}

bool Nemesis::engine_crash() { return any().break_engine(false, dice_.chance(0.5)); }
bool Nemesis::engine_hang() { return any().break_engine(true, false); }

bool Nemesis::disk_slow() {
  for (DaemonMachine* daemon : some()) {
    daemon->disk().pace.state_max = dice_.duration(milliseconds(100), seconds(3));
    later(dice_.duration(seconds(2), seconds(30)), [daemon] { daemon->disk().pace = DiskPace{}; });
  }
  return true;
}

bool Nemesis::disk_full() {
  for (DaemonMachine* daemon : some()) {
    daemon->disk().kept.is_full = true;
    daemon->disk().kept.is_full_of_state = dice_.chance(0.5);
    later(dice_.duration(seconds(1), seconds(25)), [daemon] { daemon->disk().make_room(); });
  }
  return true;
}

bool Nemesis::sync_fails() {
  for (DaemonMachine* daemon : some()) {
    daemon->fail_sync(dice_);
    for (const Duration wait : {seconds(7), seconds(14), seconds(21)}) start_later(*daemon, wait);
  }
  return true;
}

// One of the next files that it writes: the process ends, as with every error
// of its disk but a full one.
bool Nemesis::file_error() {
  for (DaemonMachine* daemon : some()) {
    daemon->fail_file(dice_);
    for (const Duration wait : {seconds(7), seconds(14), seconds(21)}) start_later(*daemon, wait);
  }
  return true;
}

bool Nemesis::bit_flips() {
  const double share = dice_.real(0.1, 0.8);
  const Duration lasts = dice_.duration(seconds(2), seconds(20));
  for (DaemonMachine* daemon : some()) {
    daemon->disk().flip_reads(share, dice_.u64());
    later(lasts, [daemon] { daemon->disk().flip_reads(0, 1); });
  }
  if (dice_.chance(0.3)) {
    cluster_.coordinator().disk().flip_reads(share, dice_.u64());
    later(lasts, [this] { cluster_.coordinator().disk().flip_reads(0, 1); });
  }
  return true;
}

// At rest on one disk; half of the time just what its node has sent and the
// coordinator does not have yet.
bool Nemesis::object_lost() {
  DaemonMachine& daemon = any();
  if (dice_.chance(0.5)) return daemon.lose_object();
  if (!daemon.is_up()) return false;
  daemon.when_it_commits([&daemon](const pb::Commit& commit) {
    daemon.lose_object(*Hash::from_raw(commit.manifest().manifest()));
  });
  return true;
}

bool Nemesis::transfers_fail() {
  Network& network = cluster_.world().network;
  network.transfers_fail = dice_.real(0.1, 0.9);
  later(dice_.duration(seconds(1), seconds(20)), [&network] { network.transfers_fail = 0; });
  return true;
}

// The time of day is set, to and fro: leases must not care.
bool Nemesis::wall_clock() {
  const auto jump = [this] { return static_cast<std::int64_t>(dice_.real(-7.2e6, 7.2e6)); };
  for (DaemonMachine* daemon : some()) {
    daemon->clock().set_wall_offset(jump());
    later(dice_.duration(seconds(1), seconds(60)),
          [daemon] { daemon->clock().set_wall_offset(0); });
  }
  if (dice_.chance(0.7)) {
    cluster_.coordinator().clock().set_wall_offset(jump());
    later(dice_.duration(seconds(1), seconds(60)),
          [this] { cluster_.coordinator().clock().set_wall_offset(0); });
  }
  return true;
}

// ---- Coordinator ----

void Nemesis::start_coordinator_later(Duration delay) {
  later(delay, [this] {
    if (!cluster_.coordinator().is_up()) cluster_.coordinator().start();
  });
}

bool Nemesis::coordinator_kill() {
  if (!cluster_.coordinator().is_up()) return false;
  if (backups_.empty() || dice_.chance(0.3)) keep_backup();
  cluster_.coordinator().kill();
  start_coordinator_later(
      dice_.duration(milliseconds(100), dice_.chance(0.6) ? seconds(3) : seconds(30)));
  return true;
}

bool Nemesis::coordinator_vanish() {
  if (!cluster_.coordinator().is_up()) return false;
  cluster_.coordinator().kill(CoordinatorMachine::Death::kVanished);
  start_coordinator_later(dice_.duration(seconds(1), seconds(10)));
  return true;
}

bool Nemesis::coordinator_pause() {
  if (!cluster_.coordinator().is_up() || cluster_.coordinator().is_paused()) return false;
  cluster_.coordinator().pause(dice_.duration(milliseconds(100), seconds(15)));
  return true;
}

bool Nemesis::coordinator_disk_stall() {
  DiskPace& pace = cluster_.coordinator().disk().pace;
  pace.state_min = dice_.duration(milliseconds(10), seconds(1));
  pace.state_max = pace.state_min + dice_.duration({}, seconds(10));
  if (dice_.chance(0.3)) pace.object_max = dice_.duration(milliseconds(100), seconds(1));
  later(dice_.duration(seconds(1), seconds(20)), [&pace] { pace = DiskPace{}; });
  return true;
}

bool Nemesis::coordinator_disk_full() {
  Disk& disk = cluster_.coordinator().disk();
  disk.set_free_bytes(dice_.between(0, 64 << 20));
  disk.kept.is_full = dice_.chance(0.5);
  disk.kept.is_full_of_state = disk.kept.is_full && dice_.chance(0.7);
  later(dice_.duration(seconds(1), seconds(25)), [&disk] {
    disk.set_free_bytes(kRoom);
    disk.make_room();
  });
  return true;
}

bool Nemesis::coordinator_damage() {
  const std::optional<Hash> victim = cluster_.coordinator().damage_object(dice_);
  if (!victim) return false;
  // A person looks for what is damaged.
  pb::AdminRequest verify;
  verify.mutable_object_verify()->set_manifest(victim->raw());
  cluster_.admin().say(verify);
  if (dice_.chance(0.5))
    later(dice_.duration(seconds(1), seconds(20)), [this] { cluster_.add_dataset_again(); });
  return true;
}

// Often while the disk is slow: then the deletion is not durable yet when it is
// added again.
bool Nemesis::dataset_again() {
  if (!cluster_.coordinator().is_up()) return false;
  if (dice_.chance(0.5)) coordinator_disk_stall();
  for (std::uint64_t times = dice_.between(1, 4); times > 0; --times)
    later(dice_.duration({}, seconds(15)), [this] { cluster_.add_spare_dataset(); });
  return true;
}

bool Nemesis::run_again() {
  if (!cluster_.coordinator().is_up() || cluster_.run_state().empty()) return false;
  cluster_.add_spare_run();
  if (dice_.chance(0.5))
    later(dice_.duration(seconds(1), seconds(30)), [this] { cluster_.add_spare_run(); });
  if (dice_.chance(0.5))
    later(dice_.duration(seconds(1), seconds(30)), [this] { cluster_.delete_spare_run(); });
  return true;
}

bool Nemesis::coordinator_sync_fails() {
  if (!cluster_.coordinator().is_up()) return false;
  cluster_.coordinator().fail_sync(dice_);
  for (const Duration wait : {seconds(3), seconds(9), seconds(20)}) start_coordinator_later(wait);
  return true;
}

bool Nemesis::coordinator_file_error() {
  if (!cluster_.coordinator().is_up()) return false;
  cluster_.coordinator().fail_file(dice_);
  for (const Duration wait : {seconds(3), seconds(9), seconds(20)}) start_coordinator_later(wait);
  return true;
}

void Nemesis::keep_backup() {
  if (cluster_.run_state().empty()) return;
  CoordinatorMachine::Backup backup = cluster_.coordinator().backup();
  if (backup.disk == nullptr) return;
  backups_.push_back(std::move(backup));
  if (backups_.size() > kBackups) backups_.pop_front();
}

// Its disk is lost; what a backup of any day held comes back, under a higher
// generation.
bool Nemesis::coordinator_restore() {
  if (!cluster_.coordinator().is_up()) return false;
  if (backups_.empty()) {
    keep_backup();
    return false;
  }
  cluster_.coordinator().kill();
  const auto backup =
      backups_.begin() + static_cast<std::ptrdiff_t>(dice_.between(0, backups_.size() - 1));
  cluster_.coordinator().restore(*backup);
  ++restores_;
  cluster_.renew_token();
  if (dice_.chance(0.5)) backups_.erase(backup);
  start_coordinator_later(dice_.duration(seconds(1), seconds(10)));
  return true;
}

// ---- Enemies and people ----

// As a hostile node would: another's commit in its own name, just as the other
// sends it.
void Nemesis::forge_next(DaemonMachine& forger, DaemonMachine& victim) {
  victim.when_it_commits([&forger, number = dice_.u64() >> 8](const pb::Commit& commit) {
    pb::ControlRequest request;
    request.set_id(1ULL << 60 | number);
    *request.mutable_commit() = commit;
    forger.forge(request);
  });
}

// A node says that another's work is its own, that the other's lease is, or
// that the other's engine has failed.
bool Nemesis::forge() {
  DaemonMachine& victim = any();
  DaemonMachine& forger = any();
  if (&victim == &forger || !victim.last_commit() || !forger.is_up()) return false;
  const pb::Commit said = *victim.last_commit();
  pb::ControlRequest request;
  request.set_id(1ULL << 60 | dice_.u64() >> 8);
  switch (dice_.between(0, 5)) {
    case 0:
      *request.mutable_commit() = said;
      break;
    case 1:
      *request.mutable_commit() = said;
      request.mutable_commit()->set_epoch(said.epoch() + 1);
      break;
    case 2:
      request.mutable_return_lease()->set_run(said.run());
      request.mutable_return_lease()->set_expert(said.expert());
      request.mutable_return_lease()->set_epoch(said.epoch());
      break;
    case 3: {
      auto& report = *request.mutable_engine_report();
      report.set_run(said.run());
      report.set_expert(said.expert());
      report.set_epoch(said.epoch());
      report.set_attempt(said.attempt());
      report.set_failure(pb::EngineEvent::FAILURE_NON_FINITE);
      report.set_reason("said another node");
      break;
    }
    case 4:  // its own lease, with what the other has trained
      forger.when_it_commits([&forger, said, id = request.id()](const pb::Commit& own) {
        pb::ControlRequest mixed;
        mixed.set_id(id);
        *mixed.mutable_commit() = own;
        *mixed.mutable_commit()->mutable_manifest() = said.manifest();
        forger.forge(mixed);
      });
      return true;
    default:
      forge_next(forger, victim);
      return true;
  }
  forger.forge(request);
  return true;
}

// A commit comes a second time, long after it was decided.
bool Nemesis::replay() {
  DaemonMachine& daemon = any();
  if (!daemon.last_commit()) return false;
  pb::ControlRequest request;
  request.set_id(1ULL << 60 | dice_.u64() >> 8);
  *request.mutable_commit() = *daemon.last_commit();
  later(dice_.duration({}, seconds(15)), [&daemon, request] { daemon.forge(request); });
  return true;
}

bool Nemesis::spend_token() {
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(pb::ROLE_NODE);
  request.mutable_token_create()->set_uses(static_cast<std::uint32_t>(dice_.between(1, 2)));
  request.mutable_token_create()->set_ttl_seconds(dice_.chance(0.5) ? 86400 : dice_.between(1, 5));
  cluster_.admin().ask(request, [this, dice = dice_](const pb::ControlReply& reply) mutable {
    if (!reply.admin().has_token_created()) return;
    const pb::TokenCreated token = reply.admin().token_created();
    for (std::uint64_t i = dice.between(2, 5); i > 0; --i) {
      later(dice.duration({}, seconds(5)), [this, token] {
        strangers_.push_back(std::make_unique<Stranger>(
            cluster_.world(), text("stranger", ++stranger_count_), token));
      });
    }
  });
  return true;
}

// It joins as any other does, and is gone after a while.
bool Nemesis::hostile_node() {
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(pb::ROLE_NODE);
  request.mutable_token_create()->set_uses(1);
  request.mutable_token_create()->set_ttl_seconds(86400);
  cluster_.admin().ask(request, [this, dice = dice_](const pb::ControlReply& reply) mutable {
    if (healed_ || !reply.admin().has_token_created()) return;
    const Duration stays = dice.duration(seconds(5), seconds(40));
    hostile_.push_back(std::make_unique<Enemy>(cluster_.world(), cluster_.coordinator(),
                                               text("enemy-", hostile_.size() + 1),
                                               reply.admin().token_created(), dice));
    later(stays, [enemy = hostile_.back().get()] { enemy->leave(); });
  });
  return true;
}

// Its key is worth nothing from then on; its person wipes the disk and joins it
// anew.
bool Nemesis::revoke() {
  DaemonMachine& victim = any();
  if (!victim.is_enrolled()) return false;
  const std::string key = victim.identity().x25519_key;
  const Duration rejoins = dice_.duration({}, seconds(20));
  // Only records bring back what a restore forgets.
  if (!cluster_.options().gossips) backups_.clear();
  cluster_.ask_named(
      [](pb::AdminRequest& r, const std::string& name) { r.mutable_node_revoke()->set_name(name); },
      victim.id().str(),
      [this, key, rejoins, &victim, restores = restores_, identity = victim.identity(),
       certificate = victim.certificate()](const pb::ControlReply& reply) {
        if (!reply.admin().has_ack()) return;
        if (cluster_.options().gossips) enemies_->key_was_revoked(identity, certificate);
        const bool overtaken = restores != restores_;  // the answer was on its way
        if (!overtaken || cluster_.options().gossips)
          cluster_.invariants().revocation_acknowledged(key, overtaken);
        const auto rejoin = [this, key, &victim] {
          if (victim.identity().x25519_key != key) return;
          victim.kill(DaemonMachine::Death::kKilled);
          victim.wipe_disk();
          victim.start(cluster_.token());
        };
        if (healed_) return rejoin();
        at_healing_.emplace_back(rejoin);
        later(rejoins, rejoin);
      });
  return true;
}

// ---- Gossip ----

bool Nemesis::forged_record() { return enemies_->forged_record(dice_); }
bool Nemesis::old_record() { return enemies_->old_record(dice_); }
bool Nemesis::revoked_record() {
  return enemies_->knows_revoked_key() ? enemies_->revoked_record(dice_) : revoke();
}
bool Nemesis::unknown_signer() { return enemies_->unknown_signer(dice_); }
bool Nemesis::two_contents() { return enemies_->two_contents(dice_); }

bool Nemesis::evict() {
  cluster_.ask_named(
      [](pb::AdminRequest& r, const std::string& name) { r.mutable_node_evict()->set_name(name); },
      any().id().str());
  return true;
}

bool Nemesis::cordon() {
  const std::string name = any().id().str();
  if (dice_.chance(0.5)) {
    cluster_.ask_named(
        [](pb::AdminRequest& r, const std::string& n) { r.mutable_node_cordon()->set_name(n); },
        name);
  } else {
    cluster_.ask_named(
        [](pb::AdminRequest& r, const std::string& n) { r.mutable_node_drain()->set_name(n); },
        name);
  }
  later(dice_.duration(seconds(1), seconds(30)), [this, name] {
    cluster_.ask_named(
        [](pb::AdminRequest& r, const std::string& n) { r.mutable_node_uncordon()->set_name(n); },
        name);
  });
  return true;
}

bool Nemesis::run_pause() {
  if (cluster_.run_state().empty()) return false;
  cluster_.ask_named(
      [](pb::AdminRequest& r, const std::string& n) { r.mutable_run_pause()->set_name(n); },
      kRunName);
  later(dice_.duration(seconds(1), seconds(20)), [this] {
    cluster_.ask_named(
        [](pb::AdminRequest& r, const std::string& n) { r.mutable_run_resume()->set_name(n); },
        kRunName);
  });
  return true;
}

bool Nemesis::run_extend() {
  if (cluster_.run_state().empty()) return false;
  cluster_.set_steps_target(cluster_.steps_target() + dice_.between(1, 50));
  pb::AdminRequest request;
  request.mutable_run_extend()->set_run(kRunName);
  request.mutable_run_extend()->set_steps(cluster_.steps_target());
  cluster_.admin().ask(request);
  return true;
}

void Nemesis::heal() {
  healed_ = true;
  World& world = cluster_.world();
  world.trace.line([] { return std::string("everything heals"); });
  world.network.transfers_fail = 0;
  for (const auto& enemy : hostile_) enemy->leave();
  for (const auto& action : at_healing_) action();
  cluster_.kill_copies();
  cluster_.coordinator().disk().heal();
  cluster_.coordinator().clock().set_wall_offset(0);
  cluster_.coordinator().disk().set_free_bytes(kRoom);
  if (!cluster_.coordinator().is_up()) cluster_.coordinator().start();
  cluster_.coordinator().bring_back_objects();
  cluster_.delete_spare_run();
  for (std::size_t i = 0; i < cluster_.daemons(); ++i) {
    DaemonMachine& daemon = cluster_.daemon(i);
    world.network.heal(daemon.name());
    daemon.disk().heal();
    daemon.clock().set_wall_offset(0);
    daemon.when_it_commits({});
    const std::string id = daemon.id().str();
    cluster_.ask_named(
        [](pb::AdminRequest& r, const std::string& n) { r.mutable_node_uncordon()->set_name(n); },
        id);
  }
  cluster_.ask_named(
      [](pb::AdminRequest& r, const std::string& n) { r.mutable_run_resume()->set_name(n); },
      kRunName);
}

}  // namespace skerry::simulation
