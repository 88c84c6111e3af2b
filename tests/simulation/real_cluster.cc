// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/real_cluster.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "protocol/validate.h"
#include "tests/simulation/admin_client.h"
#include "tests/simulation/real_coordinator.h"
#include "tests/simulation/real_daemon.h"

namespace skerry::simulation {
namespace {

constexpr Duration kFaultsBegin = seconds(3);
constexpr Duration kFaultsEnd = seconds(93);
constexpr Duration kRecovery = std::chrono::minutes(15);
constexpr unsigned kSpins = 10'000;  // turns without a step of the clock
constexpr std::uint32_t kExperts = 2;

// The person: asks one thing after the other, again where no answer comes.
class Person {
 public:
  using Done = std::function<void(const pb::ControlReply&)>;
  Person(RealGround& ground, const RealCoordinator& coordinator)
      : ground_(ground),
        transport_(
            ground.network.make_client(coordinator.admin(), coordinator.identity().ed25519_key())) {
    transport_->dial(protocol::Endpoint::kControl);
  }

  void ask(pb::AdminRequest request, Done done) {
    asked_.push_back({std::move(request), std::move(done)});
  }

  Duration next() const { return again_; }
  void advance() {
    [[maybe_unused]] const auto ready =
        transport_->poll({}, {}, [this](const protocol::ClientEvent& event) { on_event(event); });
    if (ground_.now() >= again_) say();
  }

 private:
  void on_event(const protocol::ClientEvent& event) {
    if (std::holds_alternative<protocol::Opened>(event)) {
      is_greeted_ = false;
      return say();
    }
    const auto* received = std::get_if<protocol::Received>(&event);
    const auto reply = received == nullptr ? fail(ErrorCode::kNotFound, "")
                                           : protocol::parse_control_reply(received->bytes);
    if (!reply || reply->id() != id_) return;
    if (!is_greeted_) {
      is_greeted_ = reply->has_hello();
      return say();
    }
    if (asked_.empty() || (reply->has_error() && !reply->has_admin() &&
                           reply->error().code() == to_string(ErrorCode::kUnavailable)))
      return;
    const auto [request, done] = std::move(asked_.front());
    asked_.pop_front();
    done(*reply);
    say();
  }

  void say() {
    again_ = ground_.now() + seconds(2);
    pb::ControlRequest request;
    request.set_id(++id_);
    if (!is_greeted_) {
      *request.mutable_hello()->mutable_version() = protocol::own_version();
      request.mutable_hello()->set_software("skerry");
    } else if (!asked_.empty()) {
      *request.mutable_admin() = asked_.front().first;
    } else {
      return;
    }
    [[maybe_unused]] const Result<void> sent =
        transport_->send(protocol::Endpoint::kControl, request.SerializeAsString());
  }

  RealGround& ground_;
  std::unique_ptr<protocol::ClientTransport> transport_;
  std::deque<std::pair<pb::AdminRequest, Done>> asked_;
  bool is_greeted_ = false;
  std::uint64_t id_ = 0;
  Duration again_{};
};

class RealCluster {
 public:
  explicit RealCluster(std::uint64_t seed)
      : ground_(seed), dice_(seed, "real cluster"), coordinator_(ground_) {
    ground_.violated = [this](const std::string& rule, const std::string& what) {
      report_.violations.push_back({rule, what, ground_.now()});
    };
    ground_.world.run_seed = seed;
  }

  Report run();

 private:
  using Fault = bool (RealCluster::*)();
  void set_up();
  void create_run();
  void watch_run();
  void plan_faults();
  void heal();
  bool is_sound() const { return report_.violations.empty(); }
  void run_until(Duration end, const std::function<bool()>& done);
  void check_acknowledged();
  void later(Duration delay, std::function<void()> action);
  void start_coordinator_later(Duration delay);
  void start_later(RealDaemon& daemon, Duration delay);
  void fill(RealDisk& disk, double share_of_state);
  void slow_down(RealDisk& disk);
  RealDaemon& any() { return *daemons_[dice_.between(0, daemons_.size() - 1)]; }

  bool kill();
  bool machine_gone();
  bool pause();
  bool cut();
  bool reset();
  bool bad_weather();
  bool disk_full();
  bool disk_slow();
  bool sync_fails();
  bool file_fails();
  bool bit_flips();
  bool engine_crash();
  bool drain();
  bool coordinator_kill();
  bool coordinator_machine_gone();
  bool coordinator_pause();
  bool coordinator_disk_full();
  bool coordinator_disk_slow();
  bool coordinator_sync_fails();

  Report report_;
  RealGround ground_;
  Dice dice_;
  RealCoordinator coordinator_;
  std::unique_ptr<Person> person_;
  std::vector<std::unique_ptr<RealDaemon>> daemons_;
  std::string run_state_;
  bool healed_ = false;
  bool was_up_ = false;
};

void RealCluster::later(Duration delay, std::function<void()> action) {
  ground_.world.timeline.after(delay, [this, action = std::move(action)] {
    if (!healed_) action();
  });
}

void RealCluster::start_later(RealDaemon& daemon, Duration delay) {
  later(delay, [&daemon] {
    if (!daemon.is_up()) daemon.start();
  });
}

void RealCluster::start_coordinator_later(Duration delay) {
  later(delay, [this] {
    if (!coordinator_.is_up()) coordinator_.start();
  });
}

// ---- Set-up ----

void RealCluster::set_up() {
  const auto request = smallest_dataset(
      "images", kExperts, [this](const std::string& name, const std::string& /*role*/) {
        return coordinator_.add_file(name, "the bytes of " + name);
      });
  coordinator_.start();
  person_ = std::make_unique<Person>(ground_, coordinator_);
  person_->ask(request, [this](const pb::ControlReply& reply) {
    if (reply.has_error())
      ground_.violated("set-up", "the dataset is refused: " + reply.error().message());
    create_run();
  });
  const std::uint64_t nodes = dice_.between(2, 3);
  for (std::uint64_t i = 1; i <= nodes; ++i) {
    daemons_.push_back(std::make_unique<RealDaemon>(
        ground_, coordinator_.token(), RealDaemon::Settings{.name = text("node-", i), .slots = 1}));
    daemons_.back()->start();
  }
}

void RealCluster::create_run() {
  pb::AdminRequest request = smallest_run("demo", "images");
  pb::RunSpec& spec = *request.mutable_run_create()->mutable_spec();
  spec.set_round_steps(5);
  spec.set_round_seconds(60);
  spec.set_offline_rounds(20);
  spec.set_keep(2);
  spec.set_copies(static_cast<std::uint32_t>(dice_.between(1, 2)));
  spec.set_turn_rounds(5);
  spec.mutable_train()->set_seed(ground_.world.run_seed);
  spec.mutable_train()->set_steps(400);
  person_->ask(request, [this](const pb::ControlReply& reply) {
    const bool waits =
        reply.has_error() && reply.error().message().find("dataset") != std::string::npos;
    if (waits) return ground_.world.timeline.after(seconds(1), [this] { create_run(); });
    if (reply.has_error())
      ground_.violated("set-up", "the run is refused: " + reply.error().message());
    watch_run();
  });
}

void RealCluster::watch_run() {
  pb::AdminRequest request;
  request.mutable_run_show()->set_name("demo");
  person_->ask(request, [this](const pb::ControlReply& reply) {
    if (reply.admin().runs().runs_size() == 1) run_state_ = reply.admin().runs().runs(0).state();
    ground_.world.timeline.after(seconds(3), [this] { watch_run(); });
  });
}

// ---- Faults ----

bool RealCluster::kill() {
  RealDaemon& daemon = any();
  daemon.kill(false);
  start_later(daemon, dice_.duration(milliseconds(10), seconds(8)));
  return true;
}

bool RealCluster::machine_gone() {
  RealDaemon& daemon = any();
  daemon.kill(true);
  start_later(daemon, dice_.duration(seconds(1), seconds(15)));
  return true;
}

bool RealCluster::pause() {
  any().pause(dice_.duration(milliseconds(100), seconds(12)));
  return true;
}

bool RealCluster::cut() {
  const std::string key = any().key();
  ground_.network.partition(key, true);
  later(dice_.duration(seconds(1), seconds(15)),
        [this, key] { ground_.network.partition(key, false); });
  return true;
}

bool RealCluster::reset() {
  ground_.network.reset(any().key());
  return true;
}

bool RealCluster::bad_weather() {
  protocol::Faults faults;
  faults.delay_max = dice_.duration(milliseconds(2), milliseconds(200));
  faults.loss = dice_.real(0, 0.1);
  faults.silent_loss = false;
  faults.duplicate = dice_.real(0, 0.2);
  faults.reset = dice_.real(0, 0.02);
  ground_.network.set_faults(faults);
  later(dice_.duration(seconds(2), seconds(15)), [this] { ground_.network.set_faults({}); });
  return true;
}

// With this share, for state as well.
void RealCluster::fill(RealDisk& disk, double share_of_state) {
  disk.kept.is_full = true;
  disk.kept.is_full_of_state = dice_.chance(share_of_state);
  later(dice_.duration(seconds(1), seconds(12)), [&disk] { disk.make_room(); });
}

void RealCluster::slow_down(RealDisk& disk) {
  disk.slowest = dice_.duration(milliseconds(100), seconds(2));
  later(dice_.duration(seconds(2), seconds(15)), [&disk] { disk.slowest = RealDisk::kUsual; });
}

bool RealCluster::disk_full() {
  fill(any().disk(), 0.6);
  return true;
}

bool RealCluster::disk_slow() {
  slow_down(any().disk());
  return true;
}

// The process ends by it, and is started again.
bool RealCluster::sync_fails() {
  RealDaemon& daemon = any();
  const auto effect =
      dice_.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  daemon.disk().store.fail_at(storage::StoreOperation::kWrite,
                              static_cast<unsigned>(dice_.between(1, 3)), ErrorCode::kIo, effect);
  for (const Duration wait : {seconds(6), seconds(12), seconds(18)}) start_later(daemon, wait);
  return true;
}

bool RealCluster::file_fails() {
  RealDaemon& daemon = any();
  const auto operation = static_cast<storage::FileOperation>(dice_.between(2, 5));
  const auto effect =
      dice_.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  daemon.disk().files.fail_at(operation, static_cast<unsigned>(dice_.between(1, 4)), ErrorCode::kIo,
                              effect);
  for (const Duration wait : {seconds(6), seconds(12), seconds(18)}) start_later(daemon, wait);
  return true;
}

bool RealCluster::bit_flips() {
  RealDisk& disk = any().disk();
  const double share = dice_.real(0.05, 0.5);
  disk.files.flip_reads(share, dice_.u64());
  later(dice_.duration(seconds(1), seconds(8)), [&disk] { disk.files.flip_reads(0, 1); });
  return true;
}

bool RealCluster::engine_crash() { return any().crash_engine(); }

bool RealCluster::drain() {
  RealDaemon& daemon = any();
  daemon.drain();
  if (dice_.chance(0.3)) later(dice_.duration({}, seconds(3)), [&daemon] { daemon.drain(); });
  for (const Duration wait : {seconds(10), seconds(25)}) start_later(daemon, wait);
  return true;
}

bool RealCluster::coordinator_kill() {
  coordinator_.kill(false);
  start_coordinator_later(dice_.duration(milliseconds(100), seconds(8)));
  return true;
}

bool RealCluster::coordinator_machine_gone() {
  coordinator_.kill(true);
  start_coordinator_later(dice_.duration(seconds(1), seconds(10)));
  return true;
}

bool RealCluster::coordinator_pause() {
  coordinator_.pause(dice_.duration(milliseconds(100), seconds(10)));
  return true;
}

bool RealCluster::coordinator_disk_full() {
  fill(coordinator_.disk(), 0.7);
  return true;
}

bool RealCluster::coordinator_disk_slow() {
  slow_down(coordinator_.disk());
  return true;
}

bool RealCluster::coordinator_sync_fails() {
  if (!coordinator_.is_up()) return false;
  const auto operation =
      dice_.chance(0.5) ? storage::StoreOperation::kWrite : storage::StoreOperation::kFlush;
  const auto effect =
      dice_.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  coordinator_.disk().store.fail_at(operation, static_cast<unsigned>(dice_.between(1, 3)),
                                    ErrorCode::kIo, effect);
  for (const Duration wait : {seconds(4), seconds(9), seconds(18)}) start_coordinator_later(wait);
  return true;
}

void RealCluster::plan_faults() {
  static constexpr std::pair<const char*, Fault> kFaults[] = {
      {"daemon_kill", &RealCluster::kill},
      {"machine_gone", &RealCluster::machine_gone},
      {"daemon_pause", &RealCluster::pause},
      {"partition", &RealCluster::cut},
      {"reset", &RealCluster::reset},
      {"bad_weather", &RealCluster::bad_weather},
      {"disk_full", &RealCluster::disk_full},
      {"disk_slow", &RealCluster::disk_slow},
      {"sync_fails", &RealCluster::sync_fails},
      {"file_error", &RealCluster::file_fails},
      {"bit_flips", &RealCluster::bit_flips},
      {"engine_crash", &RealCluster::engine_crash},
      {"drain", &RealCluster::drain},
      {"coordinator_kill", &RealCluster::coordinator_kill},
      {"coordinator_machine_gone", &RealCluster::coordinator_machine_gone},
      {"coordinator_pause", &RealCluster::coordinator_pause},
      {"coordinator_disk_full", &RealCluster::coordinator_disk_full},
      {"coordinator_disk_slow", &RealCluster::coordinator_disk_slow},
      {"coordinator_sync_fails", &RealCluster::coordinator_sync_fails},
  };
  Dice plan(ground_.world.seed, "real plan");
  for (Duration at = kFaultsBegin; at < kFaultsEnd;
       at += plan.duration(milliseconds(200), seconds(8))) {
    const auto& [kind, cause] = kFaults[plan.between(0, std::size(kFaults) - 1)];
    later(at, [this, name = kind, fault = cause] {
      ground_.tell(text("# ", name));
      if ((this->*fault)()) ++report_.faults[name];
    });
  }
}

void RealCluster::heal() {
  ground_.tell("everything heals");
  healed_ = true;
  ground_.network.set_faults({});
  coordinator_.disk().heal();
  for (const auto& daemon : daemons_) {
    ground_.network.partition(daemon->key(), false);
    daemon->disk().heal();
  }
}

// ---- The clock ----

void RealCluster::run_until(Duration end, const std::function<bool()>& done) {
  unsigned spins = 0;
  while (is_sound() && ground_.now() < end && !done()) {
    Duration next = std::min({end, ground_.network.next_due(), ground_.world.timeline.next(),
                              coordinator_.next(), person_->next()});
    for (const auto& daemon : daemons_) next = std::min(next, daemon->next());
    next = std::max(next, ground_.now());
    spins = next > ground_.now() ? 0 : spins + 1;
    if (spins > kSpins) return ground_.violated("spin", "a host is due again and again");
    ground_.network.advance(next - ground_.now());
    ground_.world.timeline.run_until(next, [] { return false; });
    coordinator_.advance();
    if (coordinator_.is_up() && !was_up_) check_acknowledged();
    was_up_ = coordinator_.is_up();
    for (const auto& daemon : daemons_) daemon->advance();
    person_->advance();
    ++report_.events;
  }
}

// What a start of the coordinator finds, and what it has in the end.
void RealCluster::check_acknowledged() {
  for (const auto& daemon : daemons_) {
    for (const auto& [id, newest] : daemon->acknowledged()) {
      for (const coordinator::ExpertView& expert : coordinator_.experts()) {
        if (expert.id != id) continue;
        if (expert.head_step < newest.step) {
          ground_.violated("S4",
                           text("step ", newest.step, " of expert ", id.index,
                                " was acknowledged, and its head is of step ", expert.head_step));
          continue;
        }
        const std::string wrong = wrong_weights(coordinator_.objects(), *expert.head);
        if (!wrong.empty())
          ground_.violated("S4", text("the head of expert ", id.index, " is not whole: ", wrong));
      }
    }
  }
}

Report RealCluster::run() {
  set_up();
  plan_faults();
  run_until(kFaultsEnd, [] { return false; });
  heal();
  // What a person does for a fleet.
  const auto tend = [this] {
    if (!coordinator_.is_up()) coordinator_.start();
    for (const auto& daemon : daemons_) {
      if (!daemon->is_up()) daemon->start();
    }
  };
  const Duration end = ground_.now() + kRecovery;
  while (is_sound() && run_state_ != "done" && ground_.now() < end) {
    tend();
    run_until(std::min(end, ground_.now() + seconds(5)), [this] { return run_state_ == "done"; });
  }
  if (is_sound() && run_state_ != "done")
    ground_.violated("L5", text("everything works and the run does not end: it is ", run_state_));
  if (is_sound() && coordinator_.is_up()) check_acknowledged();
  report_.seed = ground_.world.seed;
  report_.virtual_time = ground_.now();
  for (const auto& daemon : daemons_) report_.commits += daemon->stored();
  report_.trace_hash = ground_.world.trace.hash();
  report_.last_lines.assign(ground_.world.trace.lines().begin(), ground_.world.trace.lines().end());
  return std::move(report_);
}

}  // namespace

Report simulate_hosts(std::uint64_t seed) { return RealCluster(seed).run(); }

}  // namespace skerry::simulation
