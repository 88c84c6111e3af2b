// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/fleet.h"

#include <malloc.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "tests/simulation/admin_client.h"
#include "tests/simulation/coordinator_machine.h"
#include "tests/simulation/daemon_machine.h"

namespace skerry::simulation {
namespace {

constexpr std::uint64_t kPartitions = 250;  // of a dataset, so that its files keep to their limit
constexpr double kHandshakesPerSecond = 1000;
constexpr Duration kAway = seconds(30);
constexpr Duration kFirstCommit = seconds(5);
constexpr Duration kDetected = seconds(12);
constexpr Duration kReassigned = seconds(15);
constexpr char kData[] = "images";

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

class Fleet {
 public:
  explicit Fleet(std::uint64_t nodes)
      : nodes_(nodes),
        runs_(std::max<std::uint64_t>(1, nodes / 2 / kPartitions)),
        partitions_(std::max<std::uint64_t>(1, nodes / 2 / runs_)) {}

  int run();

 private:
  void begin();
  void add_dataset();
  void create_run(std::uint64_t number);
  void restart();
  void lose_half();
  bool until(const std::function<bool()>& condition, Duration limit);
  bool ask(pb::AdminRequest request, pb::AdminReply& reply);
  std::vector<coordinator::ExpertView> experts() const { return coordinator_.core()->experts(); }
  std::uint64_t commits() const;
  Duration now() const { return world_.timeline.now(); }

  const std::uint64_t nodes_;
  const std::uint64_t runs_;
  const std::uint64_t partitions_;
  World world_{1, Trace::Keep::kNothing};
  const coordinator::Config config_;
  CoordinatorMachine coordinator_{world_, config_};
  AdminClient admin_{world_, coordinator_.admin()};
  std::vector<std::unique_ptr<DaemonMachine>> daemons_;
  pb::TokenCreated token_;

  Duration first_commit_{};
  Duration all_served_{};
  Duration detected_{};
  Duration reassigned_{};
  std::uint64_t leases_lost_ = 0;
};

bool Fleet::until(const std::function<bool()>& condition, Duration limit) {
  const Duration end = now() + limit;
  while (now() < end) {
    if (condition()) return true;
    world_.timeline.run_until(now() + milliseconds(50), [] { return false; });
  }
  return condition();
}

bool Fleet::ask(pb::AdminRequest request, pb::AdminReply& reply) {
  bool answered = false;
  admin_.ask(std::move(request), [&](const pb::ControlReply& said) {
    SKERRY_CHECK(said.has_admin(), "refused: ", said.error().message());
    reply = said.admin();
    answered = true;
  });
  return until([&] { return answered; }, seconds(60));
}

void Fleet::add_dataset() {
  const auto request =
      smallest_dataset(kData, static_cast<std::uint32_t>(partitions_),
                       [this](const std::string& name, const std::string& /*role*/) {
                         const Object& object = world_.library.add_file(name);
                         admin_.add_file(object.name);
                         return object.ref();
                       });
  pb::AdminReply reply;
  SKERRY_CHECK(ask(request, reply), "no answer");
  const auto is_ready = [&] {
    pb::AdminRequest show;
    show.mutable_dataset_show()->set_name(kData);
    return ask(show, reply) && reply.datasets().datasets(0).state() == "ready";
  };
  SKERRY_CHECK(until(is_ready, seconds(600)), "the dataset does not arrive");
}

void Fleet::create_run(std::uint64_t number) {
  pb::AdminRequest request = smallest_run(text("run-", number), kData);
  pb::RunSpec& spec = *request.mutable_run_create()->mutable_spec();
  spec.set_round_steps(20);
  spec.set_round_seconds(60);
  spec.set_offline_rounds(20);
  spec.set_keep(2);
  spec.set_turn_rounds(5);
  auto& train = *spec.mutable_train();
  train.set_seed(1);
  train.set_steps(1'000'000);
  pb::AdminReply reply;
  SKERRY_CHECK(ask(request, reply), "no answer");
}

std::uint64_t Fleet::commits() const {
  std::uint64_t total = 0;
  for (const auto& expert : experts()) total += expert.head_step;
  return total;
}

// Everybody joins and trains.
void Fleet::begin() {
  world_.run_seed = 1;
  coordinator_.start();
  coordinator_.measure();
  // A fast disk: the real host's write several batches at once.
  coordinator_.disk().pace.state_min = std::chrono::microseconds(50);
  coordinator_.disk().pace.state_max = std::chrono::microseconds(200);
  admin_.start();
  add_dataset();
  for (std::uint64_t i = 0; i < runs_; ++i) create_run(i);
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(pb::ROLE_NODE);
  request.mutable_token_create()->set_uses(static_cast<std::uint32_t>(nodes_));
  request.mutable_token_create()->set_ttl_seconds(86400);
  pb::AdminReply reply;
  SKERRY_CHECK(ask(request, reply), "no answer");
  token_ = reply.token_created();
  world_.network.set_handshake_time(
      Duration(static_cast<std::int64_t>(1e9 / kHandshakesPerSecond)));
  Dice dice(1, "fleet");
  for (std::uint64_t i = 0; i < nodes_; ++i) {
    DaemonMachine::Settings settings;
    settings.name = text("n", i);
    settings.step_time = seconds(1);
    settings.drift = dice.real(-0.005, 0.005);
    daemons_.push_back(std::make_unique<DaemonMachine>(world_, settings));
    daemons_.back()->start(token_);
  }
  const auto all_train = [&] {
    return std::ranges::all_of(
        experts(), [](const auto& expert) { return expert.lease && expert.head_step > 0; });
  };
  SKERRY_CHECK(until(all_train, seconds(300)), "not every expert is trained");
}

void Fleet::restart() {
  const auto before = experts();
  coordinator_.kill();
  world_.timeline.run_until(now() + kAway, [] { return false; });
  coordinator_.start();
  const Duration back = now();
  const std::uint64_t done = commits();
  SKERRY_CHECK(until([&] { return commits() > done; }, seconds(60)), "nobody commits");
  first_commit_ = now() - back;
  const auto all_heard = [&] {
    return std::ranges::all_of(daemons_,
                               [](const auto& daemon) { return daemon->core()->connected(); });
  };
  SKERRY_CHECK(until(all_heard, seconds(120)), "not everybody is served");
  all_served_ = now() - back;
  world_.timeline.run_until(now() + seconds(30), [] { return false; });
  const auto after = experts();
  for (std::size_t i = 0; i < before.size(); ++i)
    leases_lost_ += after[i].epoch == before[i].epoch ? 0 : 1;
}

void Fleet::lose_half() {
  Dice dice(1, "half");
  std::set<NodeId> dead;
  const Duration gone = now();
  for (const auto& daemon : daemons_) {
    if (!dice.chance(0.5)) continue;
    dead.insert(daemon->id());
    daemon->kill(dice.chance(0.5) ? DaemonMachine::Death::kKilled
                                  : DaemonMachine::Death::kVanished);
  }
  const auto none = [&](auto is_left) {
    return [&, is_left] {
      return std::ranges::none_of(experts(),
                                  [&](const auto& e) { return e.lease && is_left(*e.lease); });
    };
  };
  const auto is_held = [&](const coordinator::LeaseView& lease) {
    return dead.contains(lease.node) && !lease.lapsed;
  };
  const auto is_theirs = [&](const coordinator::LeaseView& lease) {
    return dead.contains(lease.node);
  };
  SKERRY_CHECK(until(none(is_held), seconds(120)), "the dead are not found");
  detected_ = now() - gone;
  SKERRY_CHECK(until(none(is_theirs), seconds(120)), "the dead are not replaced");
  reassigned_ = now() - gone;
}

int Fleet::run() {
  begin();
  restart();
  lose_half();
  const double virtual_seconds = in_seconds(now());
  const double coordinator_seconds = in_seconds(coordinator_.host_time());
  const std::uint64_t steps_done = commits();
  const std::size_t experts_count = experts().size();
  const auto with = ::mallinfo2().uordblks;
  coordinator_.kill();
  const auto without = ::mallinfo2().uordblks;
  const Duration served_limit = seconds(5) + milliseconds(static_cast<std::int64_t>(nodes_));
  const bool is_right = detected_ <= kDetected && reassigned_ <= kReassigned && leases_lost_ == 0 &&
                        first_commit_ <= kFirstCommit && all_served_ <= served_limit &&
                        coordinator_seconds < virtual_seconds;
  std::cout << "{\"nodes\":" << nodes_ << ",\"experts\":" << experts_count
            << ",\"steps\":" << steps_done << ",\"half_detected_seconds\":" << in_seconds(detected_)
            << ",\"half_reassigned_seconds\":" << in_seconds(reassigned_)
            << ",\"coordinator_away_seconds\":" << in_seconds(kAway)
            << ",\"leases_lost\":" << leases_lost_
            << ",\"first_commit_seconds\":" << in_seconds(first_commit_)
            << ",\"all_served_seconds\":" << in_seconds(all_served_)
            << ",\"virtual_seconds\":" << virtual_seconds
            << ",\"coordinator_cpu_seconds\":" << coordinator_seconds
            << ",\"coordinator_megabytes\":" << static_cast<double>(with - without) / 1e6
            << ",\"holds\":" << (is_right ? "true" : "false") << "}\n";
  return is_right ? 0 : 1;
}

}  // namespace

int run_fleet(std::uint64_t nodes) { return Fleet(nodes).run(); }

}  // namespace skerry::simulation
