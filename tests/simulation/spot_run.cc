// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/spot_run.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "coordinator/core/keys.h"
#include "coordinator/rooms/event_kinds.h"
#include "tests/simulation/admin_client.h"
#include "tests/simulation/coordinator_machine.h"
#include "tests/simulation/daemon_machine.h"

namespace skerry::simulation {
namespace {

constexpr char kData[] = "images";
constexpr char kNotice[] = "the trace: terminate";
constexpr Duration kStep = milliseconds(500);  // of a machine at speed 1
constexpr Duration kLook = seconds(1);
constexpr Duration kSampled = seconds(60);
constexpr Duration kLastCommits = std::chrono::minutes(20);  // after the end, at most
constexpr Step kNever = 1'000'000'000;

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// Counts events and the times of commits.
class SpotWatcher final : public Watcher {
 public:
  explicit SpotWatcher(const Timeline& timeline) : timeline_(timeline) {}

  void coordinator_stepped(const CoordinatorStep& step) override {
    for (const coordinator::Write& write : step.effects.batch.writes) {
      pb::Event event;
      if (!write.value || !write.key.starts_with(coordinator::kEventPrefix) ||
          !event.ParseFromString(*write.value))
        continue;
      count(event);
    }
  }
  void daemon_stepped(const DaemonStep& step) override {
    for (const pb::ControlRequest& request : step.effects.sends) {
      if (request.has_commit())
        sent_.try_emplace(request.commit().manifest().manifest(), timeline_.now());
    }
    const auto* reply = std::get_if<daemon::Reply>(&step.event);
    if (reply == nullptr || reply->reply.commit().status() != pb::COMMIT_ACCEPTED) return;
    const auto sent = sent_.find(reply->reply.commit().head().manifest());
    if (sent == sent_.end()) return;
    ++commits;
    answer_seconds += in_seconds(timeline_.now() - sent->second);
    sent_.erase(sent);
  }
  void violated(const std::string& id, const std::string& what) override {
    SKERRY_CHECK(false, id, ": ", what);
  }

  std::uint64_t turns = 0, moves = 0, leases_lost = 0, commits = 0;
  double answer_seconds = 0;  // of all of them

 private:
  void count(const pb::Event& event) {
    const auto is = [&](coordinator::EventKind kind) { return event.kind() == to_string(kind); };
    if (is(coordinator::EventKind::kMoved)) ++moves;
    if (is(coordinator::EventKind::kLeaseLost)) ++leases_lost;
    if (is(coordinator::EventKind::kLeaseReturned) && event.reason().starts_with("its turn of "))
      ++turns;
  }

  const Timeline& timeline_;
  std::map<std::string, Duration> sent_;  // by manifest
};

class SpotRun {
 public:
  explicit SpotRun(const SpotOptions& options);
  SpotReport run(const std::function<void(const std::string&)>& tells);

 private:
  struct Machine {
    const SpotMachine* about = nullptr;
    double speed = 1;
    std::unique_ptr<DaemonMachine> daemon;  // none before it joins
  };
  static coordinator::Config config_of(const SpotOptions& options);
  Duration time_of_chunk(std::string_view message, bool to_server) const;
  bool until(const std::function<bool()>& condition, Duration limit);
  pb::AdminReply ask(pb::AdminRequest request);
  void add_dataset();
  void create_run();
  void create_token();
  void plan(Machine& machine);
  void join(Machine& machine);
  void notify(Machine& machine);
  double could() const;
  void look(Duration time);
  Step trained(ExpertIndex expert) const;
  void last_commits();

  Duration now() const { return world_.timeline.now() - begin_; }  // in the trace
  Duration end() const { return options_.trace.end; }

  const SpotOptions& options_;
  World world_;
  SpotWatcher watcher_{world_.timeline};
  const coordinator::Config config_;
  CoordinatorMachine coordinator_{world_, config_};
  AdminClient admin_{world_, coordinator_.admin()};
  pb::TokenCreated token_;
  Duration begin_{};
  std::vector<Machine> machines_;  // as the trace has them
  SpotReport report_;
};

// A transfer is one message here, so the patience that real ones keep by their
// progress is scaled with it.
coordinator::Config SpotRun::config_of(const SpotOptions& options) {
  coordinator::Config config;
  const Duration transfers = options.costs.to_coordinator + options.costs.to_node;
  config.replica_patience = std::max(config.replica_patience, 3 * transfers);
  return config;
}

SpotRun::SpotRun(const SpotOptions& options)
    : options_(options), world_(1, options.keep), config_(config_of(options)) {
  world_.watchers = {&watcher_};
  world_.network.chunk_takes = [this](std::string_view message, bool to_server) {
    return time_of_chunk(message, to_server);
  };
  for (const SpotMachine& about : options_.trace.machines) {
    const auto speed = options_.speeds.find(about.name);
    machines_.push_back({&about, speed == options_.speeds.end() ? 1 : speed->second, nullptr});
  }
}

// Manifests are small.
Duration SpotRun::time_of_chunk(std::string_view message, bool to_server) const {
  pb::BlobMessage parsed;
  SKERRY_CHECK(parsed.ParseFromArray(message.data(), static_cast<int>(message.size())),
               "a message that nobody reads");
  const std::string& data = parsed.reply().data();
  if (decode_training(data))
    return to_server ? options_.costs.to_coordinator : options_.costs.to_node;
  const bool is_shard = data.starts_with("the bytes of shard-") && !to_server;
  return is_shard ? options_.costs.shard : Duration{};
}

bool SpotRun::until(const std::function<bool()>& condition, Duration limit) {
  const Duration latest = world_.timeline.now() + limit;
  while (!condition() && world_.timeline.now() < latest)
    world_.timeline.run_until(world_.timeline.now() + milliseconds(50), [] { return false; });
  return condition();
}

pb::AdminReply SpotRun::ask(pb::AdminRequest request) {
  std::optional<pb::AdminReply> reply;
  admin_.ask(std::move(request), [&](const pb::ControlReply& said) {
    SKERRY_CHECK(said.has_admin(), "refused: ", said.error().message());
    reply = said.admin();
  });
  SKERRY_CHECK(until([&] { return reply.has_value(); }, seconds(60)), "no answer");
  return *reply;
}

void SpotRun::add_dataset() {
  const auto put = [this](const std::string& name, const std::string& /*role*/) {
    const Object& object = world_.library.add_file(name);
    admin_.add_file(object.name);
    return object.ref();
  };
  pb::AdminRequest request = smallest_dataset(kData, options_.experts, put);
  for (std::uint32_t expert = 0; expert < options_.experts; ++expert) {
    pb::DatasetFile& second = *request.mutable_dataset_add()->add_files();
    *second.mutable_object() = put(text("shard-", expert, "-1.safetensors"), "shard");
    second.set_role("shard");
    second.set_partition(static_cast<std::int32_t>(expert));
    second.set_samples(1000);
  }
  request.mutable_dataset_add()->set_samples(std::uint64_t{2000} * options_.experts);
  ask(std::move(request));
  const auto is_ready = [&] {
    pb::AdminRequest show;
    show.mutable_dataset_show()->set_name(kData);
    return ask(show).datasets().datasets(0).state() == "ready";
  };
  SKERRY_CHECK(until(is_ready, seconds(600)), "the dataset does not arrive");
}

// Apart from its rounds and copies a run as `skerry run create` makes it.
void SpotRun::create_run() {
  pb::AdminRequest request = smallest_run("spot", kData);
  pb::RunSpec& spec = *request.mutable_run_create()->mutable_spec();
  spec.set_round_seconds(options_.round_seconds);
  spec.set_offline_rounds(10);
  spec.set_keep(2);
  spec.set_copies(options_.copies);
  spec.set_turn_seconds(1200);
  if (options_.cards_per_expert != 1) spec.set_cards_per_expert(options_.cards_per_expert);
  spec.mutable_train()->set_seed(1);
  spec.mutable_train()->set_steps(kNever);
  ask(std::move(request));
}

void SpotRun::create_token() {
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(pb::ROLE_NODE);
  request.mutable_token_create()->set_uses(static_cast<std::uint32_t>(machines_.size()));
  request.mutable_token_create()->set_ttl_seconds(static_cast<std::uint64_t>(end() / seconds(1)) +
                                                  3600);
  token_ = ask(std::move(request)).token_created();
}

// ---- The trace ----

void SpotRun::plan(Machine& machine) {
  const SpotMachine& about = *machine.about;
  const Duration joins = about.added + options_.costs.joins;
  if (joins >= end() || (about.removed && joins >= *about.removed)) return;
  world_.timeline.at(begin_ + joins, [this, &machine] { join(machine); });
  if (!about.removed) return;
  if (options_.notice > Duration{}) {
    world_.timeline.at(begin_ + std::max(joins, *about.removed - options_.notice),
                       [this, &machine] { notify(machine); });
  }
  world_.timeline.at(begin_ + *about.removed,
                     [&machine] { machine.daemon->kill(DaemonMachine::Death::kVanished); });
}

void SpotRun::join(Machine& machine) {
  DaemonMachine::Settings settings;
  settings.name = settings.host = machine.about->name;
  settings.step_time =
      Duration(static_cast<std::int64_t>(static_cast<double>(kStep.count()) / machine.speed));
  settings.slots = options_.slots;
  settings.exact_engines = true;
  settings.engine_start_min = settings.engine_start_max = options_.costs.start;
  settings.store_time = options_.costs.store;
  // As a person sets it whose cloud announces an end so early.
  settings.drain_limit = std::max(settings.drain_limit, options_.notice);
  settings.device = machine.speed == 1 ? "card" : text("card of speed ", machine.speed);
  machine.daemon = std::make_unique<DaemonMachine>(world_, settings);
  machine.daemon->start(token_);
}

// One that has just joined asks its cloud a little later.
void SpotRun::notify(Machine& machine) {
  const Duration left = *machine.about->removed - now();
  if (left <= Duration{}) return;
  if (machine.daemon->core() != nullptr) return machine.daemon->notice(left, kNotice);
  world_.timeline.after(kLook, [this, &machine] { notify(machine); });
}

// ---- Accounts ----

double SpotRun::could() const {
  std::vector<double> speeds;
  for (const Machine& machine : machines_) {
    const SpotMachine& about = *machine.about;
    if (now() <= about.added + options_.costs.joins) continue;
    if (about.removed && now() > *about.removed - options_.notice) continue;
    speeds.insert(speeds.end(), options_.slots, machine.speed);
  }
  const std::uint32_t each =
      options_.cards_per_expert == 0 ? options_.slots : options_.cards_per_expert;
  const std::size_t most = std::min<std::size_t>(speeds.size(), options_.experts * each);
  std::ranges::partial_sort(speeds, speeds.begin() + static_cast<std::ptrdiff_t>(most),
                            std::greater());
  double sum = 0;
  for (std::size_t i = 0; i < most; ++i) sum += speeds[i];
  return sum;
}

// At the end of a stretch of `time`.
void SpotRun::look(Duration time) {
  SpotSample sample{.at = now(), .could = could()};
  for (const Machine& machine : machines_) {
    const SpotMachine& about = *machine.about;
    if (now() <= about.added || (about.removed && now() > *about.removed)) continue;
    ++sample.machines;
    report_.node_seconds += machine.speed * options_.slots * in_seconds(time);
    if (machine.daemon == nullptr || machine.daemon->core() == nullptr) continue;
    for (const daemon::SlotView& slot : machine.daemon->core()->slots()) {
      if (machine.daemon->training_in(slot.slot) != nullptr) ++sample.training;
      if (slot.phase == pb::SLOT_FETCHING || slot.phase == pb::SLOT_STARTING)
        report_.reload_seconds += machine.speed * in_seconds(time);
    }
  }
  report_.could_seconds += sample.could * in_seconds(time);
  if (now() % kSampled < time) report_.samples.push_back(sample);
}

// By its holder, committed or not.
Step SpotRun::trained(ExpertIndex expert) const {
  Step most = 0;
  for (const Machine& machine : machines_) {
    if (machine.daemon == nullptr || machine.daemon->core() == nullptr) continue;
    for (const daemon::SlotView& slot : machine.daemon->core()->slots()) {
      if (!slot.has_lease || slot.expert.index != expert) continue;
      const FakeEngine* const engine = machine.daemon->training_in(slot.slot);
      most = std::max({most, slot.step, engine == nullptr ? 0 : engine->training().step});
    }
  }
  return most;
}

// What was trained by the end counts if it is committed after it. The fleet
// stays as it is then.
void SpotRun::last_commits() {
  std::vector<Step> by_the_end(options_.experts);
  std::vector<coordinator::ExpertView> experts = coordinator_.core()->experts();
  for (const coordinator::ExpertView& expert : experts)
    by_the_end[expert.id.index] = std::max(expert.head_step, trained(expert.id.index));
  const std::uint64_t all = world_.steps_trained;
  until(
      [&] {
        coordinator_.core()->experts(experts);
        return std::ranges::all_of(experts, [&](const coordinator::ExpertView& expert) {
          return expert.head_step >= by_the_end[expert.id.index];
        });
      },
      kLastCommits);
  std::uint64_t useful = 0;
  for (const coordinator::ExpertView& expert : experts)
    useful += std::min(expert.head_step, by_the_end[expert.id.index]);
  report_.useful_seconds = static_cast<double>(useful) * in_seconds(kStep);
  report_.lost_seconds = static_cast<double>(all - useful) * in_seconds(kStep);
}

SpotReport SpotRun::run(const std::function<void(const std::string&)>& tells) {
  coordinator_.start();
  admin_.start();
  add_dataset();
  create_run();
  create_token();
  begin_ = world_.timeline.now();
  for (Machine& machine : machines_) plan(machine);
  std::size_t told = 0;
  const auto tell = [&] {
    if (!tells) return;
    for (; told < world_.trace.lines().size(); ++told) tells(world_.trace.lines()[told]);
  };
  while (now() < end()) {
    const Duration time = std::min(kLook, end() - now());
    world_.timeline.run_until(world_.timeline.now() + time, [] { return false; });
    look(time);
    tell();
  }
  last_commits();
  tell();
  report_.turns = watcher_.turns;
  report_.moves = watcher_.moves;
  report_.leases_lost = watcher_.leases_lost;
  report_.commits = watcher_.commits;
  report_.answer_seconds =
      watcher_.answer_seconds / static_cast<double>(std::max<std::uint64_t>(1, watcher_.commits));
  report_.trace_hash = world_.trace.hash();
  return std::move(report_);
}

}  // namespace

SpotCosts SpotCosts::scaled(double cold_seconds) const {
  const double factor = cold_seconds / in_seconds(cold());
  const auto scale = [&](Duration time) {
    return std::chrono::duration_cast<Duration>(factor * time);
  };
  return {.store = scale(store),
          .to_coordinator = scale(to_coordinator),
          .to_node = scale(to_node),
          .shard = scale(shard),
          .start = scale(start),
          .joins = scale(joins)};
}

SpotReport run_spot(const SpotOptions& options,
                    const std::function<void(const std::string&)>& tells) {
  return SpotRun(options).run(tells);
}

std::string json_of(const SpotReport& report) {
  const double could = std::max(report.could_seconds, 1e-9);
  char out[512];
  std::snprintf(
      out, sizeof out,
      "{\"goodput\":%.4f,\"of_node_seconds\":%.4f,\"lost\":%.4f,\"reload\":%.4f,"
      "\"turns\":%llu,\"moves\":%llu,\"leases_lost\":%llu,\"trace_hash\":\"%016llx\"}",
      report.useful_seconds / could, report.useful_seconds / std::max(report.node_seconds, 1e-9),
      report.lost_seconds / could, report.reload_seconds / could,
      static_cast<unsigned long long>(report.turns), static_cast<unsigned long long>(report.moves),
      static_cast<unsigned long long>(report.leases_lost),
      static_cast<unsigned long long>(report.trace_hash));
  return out;
}

}  // namespace skerry::simulation
