// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/cluster.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace skerry::simulation {
namespace {

constexpr char kDataset[] = "images";
constexpr char kSpareDataset[] = "spare";
constexpr char kSpareRun[] = "spare-run";
constexpr Step kSpareSteps = 200;
constexpr double kBehindNat = 0.4;  // of nodes
constexpr double kStalls = 0.3;     // a lease without progress ends within the seed
constexpr double kForgets = 0.3;    // of seeds: a node that is gone is soon forgotten
constexpr double kGossips = 0.32;   // of seeds: one that does costs four that do not

}  // namespace

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)),
      world_(options_.seed, options_.keep),
      gossip_(world_),
      invariants_(world_),
      lease_rules_(world_, options_.config),
      coordinator_(world_, options_.config),
      money_rules_(world_, [this] { return coordinator_.now().boot; }),
      idle_rules_(world_),
      admin_(world_, coordinator_.admin()),
      steps_target_(options_.steps) {
  world_.watchers = {&invariants_, &lease_rules_, &money_rules_, &idle_rules_};
  if (options_.gossips) world_.gossip = &gossip_;
  gossip_.rules.tells = options_.tells_records;
  world_.event_limit = options_.config.events;
  world_.node_event_limit = options_.config.events_of_node;
  world_.hold_revocation = [this](const NodeId& node) {
    std::map<NodeId, std::string> holders;
    for (const auto& daemon : daemons_) {
      const gossip::Table* records = daemon->records();
      if (records != nullptr && records->is_revoked(node, daemon->now()))
        holders[daemon->id()] = daemon->name();
    }
    return holders;
  };
  world_.attempts = options_.config.attempts;
  world_.recall_least = options_.config.recall_least;
  world_.run_seed = options_.seed ^ 0x5eed;
  world_.non_finite_one_in = options_.non_finite_one_in;
  world_.non_finite_steps = options_.steps;
  coordinator_.clock().set_drift(options_.coordinator_drift);
  if (options_.steady) {
    coordinator_.disk().pace = {milliseconds(2), milliseconds(2), milliseconds(10),
                                milliseconds(10)};
    world_.network.weather("admin").delay_min = world_.network.weather("admin").delay_max =
        milliseconds(1);
  }
  for (const ClusterOptions::Node& node : options_.nodes) {
    daemons_.push_back(std::make_unique<DaemonMachine>(
        world_, DaemonMachine::Settings{.name = node.name,
                                        .host = node.host.empty() ? node.name : node.host,
                                        .slots = node.slots,
                                        .step_time = node.step_time,
                                        .gain = node.gain,
                                        .drift = node.drift,
                                        .listens = node.listens,
                                        .device = node.device,
                                        .memory_bytes = node.memory_bytes,
                                        .price = node.price,
                                        .idle_limit = node.idle_limit}));
    if (!options_.steady) continue;
    daemons_.back()->disk().pace = coordinator_.disk().pace;
    world_.network.weather(node.name).delay_min = world_.network.weather(node.name).delay_max =
        milliseconds(1);
  }
}

void Cluster::start() {
  coordinator_.start();
  SKERRY_CHECK(coordinator_.first_start().has_value(), "the first start made no token");
  token_ = coordinator_.first_start()->token;
  admin_.start();
  add_dataset();
}

void Cluster::renew_token() {
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(pb::ROLE_NODE);
  request.mutable_token_create()->set_uses(1000);
  request.mutable_token_create()->set_ttl_seconds(86400);
  admin_.ask(request, [this](const pb::ControlReply& reply) {
    if (!reply.admin().has_token_created()) return;
    token_ = reply.admin().token_created();
    for (const auto& daemon : daemons_) daemon->join_by(token_);
  });
}

void Cluster::start_daemons() {
  for (const auto& daemon : daemons_) daemon->start(token_);
}

pb::AdminRequest Cluster::dataset(const std::string& name, std::uint32_t partitions,
                                  const std::string& prefix) {
  return smallest_dataset(name, partitions,
                          [&](const std::string& file_name, const std::string& /*role*/) {
                            const Object& object = world_.library.add_file(prefix + file_name);
                            world_.trace.name_object(object.name, prefix + file_name);
                            admin_.add_file(object.name);
                            return object.ref();
                          });
}

void Cluster::add_spare_dataset() {
  pb::AdminRequest away;
  away.mutable_dataset_delete()->set_name(kSpareDataset);
  admin_.say(away);
  const pb::AdminRequest again = dataset(kSpareDataset, 1, "spare-");
  admin_.say(again);
  admin_.ask(again);
}

void Cluster::delete_spare_run() {
  ask_named([](pb::AdminRequest& r, const std::string& n) { r.mutable_run_stop()->set_name(n); },
            kSpareRun);
  ask_named([](pb::AdminRequest& r, const std::string& n) { r.mutable_run_delete()->set_name(n); },
            kSpareRun);
}

void Cluster::add_spare_run() {
  pb::AdminRequest stop;
  stop.mutable_run_stop()->set_name(kSpareRun);
  admin_.say(stop);
  pb::AdminRequest away;
  away.mutable_run_delete()->set_name(kSpareRun);
  admin_.say(away);
  add_spare_dataset();
  pb::AdminRequest run = smallest_run(kSpareRun, kSpareDataset);
  run.mutable_run_create()->mutable_spec()->set_round_steps(options_.round_steps);
  run.mutable_run_create()->mutable_spec()->set_round_seconds(60);
  run.mutable_run_create()->mutable_spec()->set_offline_rounds(options_.offline_rounds);
  run.mutable_run_create()->mutable_spec()->set_keep(options_.checkpoints_kept);
  run.mutable_run_create()->mutable_spec()->set_turn_rounds(options_.turn_rounds);
  run.mutable_run_create()->mutable_spec()->mutable_train()->set_seed(world_.run_seed);
  run.mutable_run_create()->mutable_spec()->mutable_train()->set_steps(kSpareSteps);
  admin_.ask(run, [this](const pb::ControlReply& reply) {
    if (!reply.has_admin()) return;
    const pb::RunInfo& made = reply.admin().runs().runs(0);
    world_.trace.name_run(made.id(), made.spec().name());
  });
}

void Cluster::add_dataset() {
  dataset_ = dataset(kDataset, options_.experts, "");
  admin_.ask(dataset_, [this](const pb::ControlReply& reply) {
    SKERRY_CHECK(reply.has_admin(), "the dataset is refused: ", reply.error().message());
    wait_for_dataset();
  });
}

void Cluster::wait_for_dataset() {
  pb::AdminRequest request;
  request.mutable_dataset_show()->set_name(kDataset);
  admin_.ask(request, [this](const pb::ControlReply& reply) {
    const bool ready = reply.admin().datasets().datasets_size() == 1 &&
                       reply.admin().datasets().datasets(0).state() == "ready";
    if (ready) return create_run();
    world_.timeline.after(milliseconds(500), [this] { wait_for_dataset(); });
  });
}

void Cluster::create_run() {
  pb::AdminRequest request = smallest_run(kRunName, kDataset);
  pb::RunSpec& spec = *request.mutable_run_create()->mutable_spec();
  spec.set_round_steps(options_.round_steps);
  spec.set_round_seconds(options_.round_seconds > 0 ? options_.round_seconds : 60);
  spec.set_offline_rounds(options_.offline_rounds);
  spec.set_keep(options_.checkpoints_kept);
  spec.set_copies(options_.copies);
  spec.set_turn_rounds(options_.turn_rounds);
  spec.set_budget_dollars(options_.budget_dollars);
  spec.set_budget_dollars_per_hour(options_.dollars_per_hour);
  spec.set_max_node_price(options_.max_node_price);
  if (options_.cards_per_expert != 1) spec.set_cards_per_expert(options_.cards_per_expert);
  auto& train = *spec.mutable_train();
  train.set_seed(world_.run_seed);
  train.set_steps(options_.steps);
  admin_.ask(request, [this](const pb::ControlReply& reply) {
    SKERRY_CHECK(reply.has_admin(), "the run is refused: ", reply.error().message());
    const pb::RunInfo& run = reply.admin().runs().runs(0);
    world_.trace.name_run(run.id(), run.spec().name());
    run_ = RunId(run.id());
    run_state_ = run.state();
    watch_run();
  });
}

void Cluster::watch_run() {
  pb::AdminRequest request;
  request.mutable_run_show()->set_name(kRunName);
  admin_.ask(request, [this](const pb::ControlReply& reply) {
    if (reply.admin().runs().runs_size() == 1) {
      run_state_ = reply.admin().runs().runs(0).state();
      run_reason_ = reply.admin().runs().runs(0).reason();
      raise_budget(reply.admin().runs().runs(0));
    }
    world_.timeline.after(seconds(3), [this] { watch_run(); });
  });
}

void Cluster::raise_budget(const pb::RunInfo& run) {
  const double dollars = run.spec().budget_dollars();
  if (!options_.raises_budget || run.state() != "paused" || dollars <= 0 || run.dollars() < dollars)
    return;
  pb::AdminRequest request;
  request.mutable_run_budget()->set_run(kRunName);
  request.mutable_run_budget()->set_dollars(2 * std::max(dollars, run.dollars()));
  admin_.ask(request);
  // A run that a person paused, too, could not be resumed before.
  ask_named([](pb::AdminRequest& r, const std::string& n) { r.mutable_run_resume()->set_name(n); },
            kRunName);
}

void Cluster::ask_named(void (*set)(pb::AdminRequest&, const std::string&), const std::string& name,
                        AdminClient::Done done) {
  pb::AdminRequest request;
  set(request, name);
  admin_.ask(std::move(request), std::move(done));
}

void Cluster::run_for(Duration time) {
  world_.timeline.run_until(world_.timeline.now() + time, [this] { return !is_sound(); });
}

bool Cluster::run_until(const std::function<bool()>& condition, Duration limit) {
  bool holds = false;
  world_.timeline.run_until(world_.timeline.now() + limit,
                            [&] { return (holds = condition()) || !is_sound(); });
  return holds || condition();
}

DaemonMachine& Cluster::copy(DaemonMachine& daemon) {
  DaemonMachine::Settings settings = daemon.settings();
  settings.name += text("-copy-", copies_.size() + 1);
  settings.original = &daemon;
  copies_.push_back(std::make_unique<DaemonMachine>(world_, settings));
  copies_.back()->copy_disk(daemon);
  return *copies_.back();
}

void Cluster::kill_copies() {
  for (const auto& copy : copies_) copy->kill(DaemonMachine::Death::kKilled);
}

DaemonMachine& Cluster::daemon(const std::string& name) {
  for (const auto& each : daemons_) {
    if (each->name() == name) return *each;
  }
  SKERRY_CHECK(false, "no daemon ", name);
}

coordinator::ExpertView Cluster::expert(ExpertIndex index) const {
  if (coordinator_.core() == nullptr) return {};
  for (const coordinator::ExpertView& view : coordinator_.core()->experts()) {
    if (view.id.index == index && (run_.str().empty() || view.id.run == run_)) return view;
  }
  return {};
}

DaemonMachine* Cluster::holder(ExpertIndex index) {
  const coordinator::ExpertView view = expert(index);
  if (!view.lease) return nullptr;
  for (const auto& each : daemons_) {
    if (each->id() == view.lease->node) return each.get();
  }
  return nullptr;
}

namespace {

// Half of the fleets have cards of several names, and one node in five of those
// has a card that no job fits. They have a dice of their own,
// so that a seed's other draws stay what they are.
void draw_cards(ClusterOptions& options) {
  constexpr std::uint64_t kSmall = std::uint64_t{1} << 29;
  Dice dice(options.seed, "cards");
  if (dice.chance(0.5)) return;
  std::uint64_t slots = 0, small = 0;
  for (ClusterOptions::Node& node : options.nodes) {
    node.device = text("card ", dice.between(1, 3));
    node.memory_bytes *= dice.between(1, 3);
    slots += node.slots;
    if (options.nodes.size() < 5 || &node == &options.nodes.front() || !dice.chance(0.2)) continue;
    node.memory_bytes = kSmall;
    small += node.slots;
  }
  options.steps = options.steps * (slots - small) / slots;
}

// In two fleets of five nodes have prices, and the run has limits that leave it
// half of the fleet. A dice of their own, as above.
void draw_money(ClusterOptions& options) {
  Dice dice(options.seed, "money");
  if (!dice.chance(0.4)) return;
  double fleet = 0;
  std::vector<double> prices;
  for (ClusterOptions::Node& node : options.nodes) {
    node.price = dice.chance(0.15) ? 0 : dice.real(0.1, 3);
    fleet += node.price;
    prices.push_back(node.price);
  }
  constexpr double kRun = 300.0 / 3600;  // hours
  if (dice.chance(0.6)) options.budget_dollars = std::max(0.001, fleet * kRun * dice.real(0.1, 1));
  std::ranges::sort(prices);
  // A card that fits every job is the first node's.
  const double most = std::max(prices[prices.size() * 6 / 10], options.nodes.front().price);
  if (dice.chance(0.3)) options.max_node_price = most;
  if (dice.chance(0.3)) options.dollars_per_hour = std::max(most, fleet * dice.real(0.6, 1));
}

// In two fleets of five a lease may hold several cards, and half of the nodes
// have up to four. A dice of their own, as above.
void draw_width(ClusterOptions& options) {
  Dice dice(options.seed, "width");
  if (!dice.chance(0.4)) return;
  options.cards_per_expert =
      dice.chance(0.7) ? 0 : static_cast<std::uint32_t>(1 << dice.between(1, 2));
  for (ClusterOptions::Node& node : options.nodes) {
    if (dice.chance(0.5)) node.slots = static_cast<std::uint32_t>(dice.between(2, 4));
    node.gain = dice.chance(0.3) ? dice.real(0, 0.3) : 0.85;
  }
}

// In two fleets of five, half of the nodes run a command after a while without
// work. A dice of their own, as above.
void draw_idle(ClusterOptions& options) {
  Dice dice(options.seed, "idle");
  if (!dice.chance(0.4)) return;
  for (ClusterOptions::Node& node : options.nodes) {
    if (dice.chance(0.5)) node.idle_limit = dice.duration(seconds(2), seconds(20));
  }
}

}  // namespace

ClusterOptions draw_options(std::uint64_t seed) {
  Dice dice(seed, "options");
  ClusterOptions options;
  options.seed = seed;
  const std::vector<std::string> names = {"ada", "bob", "cid", "dot", "eve",
                                          "fay", "gil", "hal", "ivy", "joe"};
  // More small fleets than large ones: what goes wrong mostly needs few nodes,
  // and a seed costs by their number.
  const std::uint64_t nodes =
      std::min(dice.between(3, names.size()), dice.between(3, names.size()));
  std::uint64_t slots = 0;
  for (std::uint64_t i = 0; i < nodes; ++i) {
    ClusterOptions::Node node{names[i], static_cast<std::uint32_t>(dice.chance(0.2) ? 2 : 1),
                              dice.duration(milliseconds(80), milliseconds(500)),
                              dice.real(-0.005, 0.005)};
    slots += node.slots;
    options.nodes.push_back(node);
  }
  options.coordinator_drift = dice.real(-0.005, 0.005);
  options.config.events = dice.between(50, 1000);
  options.config.events_of_node = options.config.events / 4;
  options.config.recall_limit = seconds(12);  // four rounds of gossip
  options.config.recall_least = seconds(4);
  // More experts than slots, as many, or fewer.
  const std::uint64_t most = std::min<std::uint64_t>(slots + 2, 8);
  options.experts = static_cast<std::uint32_t>(dice.between(1, most));
  options.round_steps = dice.chance(0.2) ? 0 : dice.between(5, 40);
  options.round_seconds = dice.real(1, 8);
  options.steps = dice.between(300, 900) * slots / std::max<std::uint64_t>(slots, options.experts);
  options.turn_rounds = static_cast<std::uint32_t>(dice.between(1, 5));
  options.offline_rounds = static_cast<std::uint32_t>(dice.between(0, 20));
  options.checkpoints_kept = static_cast<std::uint32_t>(dice.between(1, 3));
  options.non_finite_one_in = dice.chance(0.3) ? 4 : 0;
  options.copies = static_cast<std::uint32_t>(dice.between(1, 3));
  // What lives for minutes in the programs ends within a seed here.
  options.config.attempts = static_cast<std::uint32_t>(dice.between(2, 5));
  if (dice.chance(0.7)) options.config.unclaimed_objects = dice.duration(seconds(5), seconds(60));
  if (dice.chance(0.5)) options.config.avoid = dice.duration(seconds(10), seconds(120));
  if (dice.chance(0.5)) options.config.replica_patience = dice.duration(seconds(5), seconds(30));
  // Some machines run several daemons.
  options.nodes.front().host = options.nodes.front().name;
  for (std::size_t i = 1; i < options.nodes.size(); ++i) {
    options.nodes[i].host = dice.chance(0.25) ? options.nodes[i - 1].host : options.nodes[i].name;
  }
  options.gossips = dice.chance(kGossips);
  for (ClusterOptions::Node& node : options.nodes) node.listens = !dice.chance(kBehindNat);
  draw_cards(options);
  draw_money(options);
  draw_width(options);
  draw_idle(options);
  if (dice.chance(kStalls)) {
    options.config.stall = dice.duration(seconds(30), seconds(120));
    options.config.stall_over_budget = options.config.stall / 4;
  }
  if (dice.chance(kForgets))
    options.config.forget_ms = static_cast<std::int64_t>(dice.between(30'000, 240'000));
  return options;
}

}  // namespace skerry::simulation
