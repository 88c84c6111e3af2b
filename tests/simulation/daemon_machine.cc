// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/daemon_machine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/validate.h"
#include "tests/simulation/describe.h"

namespace skerry::simulation {
namespace {

constexpr Duration kBooted = seconds(500);
constexpr Duration kEnrolAgain = seconds(2);

// Where nobody gossips a node has no peer but the coordinator.
class NoPeers final : public protocol::PeerLinks {
 public:
  std::string listens_at() const override { return {}; }
  Result<void> dial(const std::string&, const std::string&) override { return {}; }
  bool is_connected(const NodeId&) const override { return false; }
  Result<void> send(const NodeId&, std::string_view) override {
    return fail(ErrorCode::kUnavailable, "not connected");
  }
  void close(const NodeId&) override {}
  void shut_out(const NodeId&, const std::string&, Duration) override {}
  bool poll(const Handler&) override { return false; }
  std::vector<int> descriptors() const override { return {}; }
};

// Ends after a while, with or without success, or not before it is killed.
class FakeIdleExec final : public daemon::IdleExec {
 public:
  FakeIdleExec(Timeline& timeline, Dice dice, std::function<void()> wake)
      : timeline_(timeline), dice_(dice), wake_(std::move(wake)) {}
  ~FakeIdleExec() override { *alive_ = false; }

  void start() override {
    constexpr double kHangs = 0.1, kFails = 0.2;
    if (dice_.chance(kHangs)) return;
    end_after(dice_.duration(milliseconds(10), seconds(5)), !dice_.chance(kFails));
  }
  void kill() override { end_after(milliseconds(10), false); }
  std::optional<daemon::IdleExecEnded> take_end() override { return std::exchange(end_, {}); }

 private:
  void end_after(Duration time, bool ok) {
    timeline_.after(time, [this, ok, alive = alive_] {
      if (!*alive) return;
      end_ = daemon::IdleExecEnded{ok, ok ? "exit code 0" : "exit code 1"};
      wake_();
    });
  }

  Timeline& timeline_;
  Dice dice_;
  std::function<void()> wake_;
  std::optional<daemon::IdleExecEnded> end_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

DaemonMachine::DaemonMachine(World& world, Settings settings)
    : world_(world),
      settings_(std::move(settings)),
      dice_(world.seed, settings_.name),
      clock_(world.timeline, kBooted, settings_.drift) {
  new_identity();
  world_.believers.push_back(this);
  disk_.kept.written = [this](const std::string& key) {
    if (key == gossip::kTableKey && world_.gossip != nullptr)
      world_.gossip->rules.saved(settings_.name, identity_.id);
  };
}

DaemonMachine::~DaemonMachine() {
  if (worker_) worker_->kill(0);
  host_.reset();
}

bool DaemonMachine::believes(const ExpertId& expert, Epoch epoch, std::uint64_t incarnation) const {
  if (!host_ || incarnation != incarnation_) return false;
  const std::vector<daemon::SlotView> slots = host_->core().slots();
  return std::ranges::any_of(slots, [&](const daemon::SlotView& slot) {
    return slot.has_lease && slot.expert == expert && slot.epoch == epoch &&
           now().boot < slot.lease_until;
  });
}

void DaemonMachine::new_identity() {
  identity_ = identity_of(text(settings_.name, "'s disk ", ++disks_));
  world_.trace.name_node(identity_.id, settings_.name);
  world_.keepers[identity_.id] = this;
  world_.key_names[identity_.x25519_key] = settings_.name;
}

// ---- Life ----

void DaemonMachine::start(const pb::TokenCreated& token) {
  SKERRY_CHECK(!is_up(), "it runs already");
  ++life_;
  inbox_.clear();
  token_ = token;
  signer_ = std::make_unique<SimulatedSigner>(identity_);
  world_.trace.add(settings_.name, "start");
  world_.trace.line([&] { return text(settings_.name, " starts"); });
  client_ = std::make_unique<ClientEnd>(
      world_.network, settings_.name, identity_.x25519_key, [this](protocol::ClientEvent event) {
        if (!inbox_.is_closed()) return came(std::move(event));
        inbox_.deliver([this, event = std::move(event), life = life_]() mutable {
          if (life == life_) came(std::move(event));
        });
      });
  if (enrolled_) return launch();
  client_->dial(Endpoint::kEnrol);
}

void DaemonMachine::launch() {
  world_.keepers[identity_.id] = this;
  auto objects = storage::ObjectStore::open(disk_.store, kObjectsFolder,
                                            storage::Checkpoints::kAsFiles, disk_.files);
  // A disk that fails at the start, or is full: the person starts it again.
  const auto may_fail = [this](const Error& error) {
    return disk_.store.failed() || error.code == ErrorCode::kIo ||
           error.code == ErrorCode::kExhausted;
  };
  if (!objects) {
    if (!may_fail(objects.error()))
      world_.violated("S16", settings_.name + " refuses its own disk: " + objects.error().message);
    return ended(Death::kKilled);
  }
  objects_ = std::move(*objects);
  for (const storage::ObjectInfo& info : objects_->list()) check_found(info);
  engines_ = std::make_unique<Engines>(
      world_,
      Engines::Settings{.name = settings_.name,
                        .step_time = settings_.step_time,
                        .start_min = settings_.engine_start_min,
                        .start_max = settings_.engine_start_max,
                        .exact = settings_.exact_engines,
                        .gain = settings_.gain,
                        .disk = disk_,
                        .lost = lost_cards_,
                        .starts = engine_starts_,
                        .wake =
                            [this] {
                              inbox_.deliver([this, life = life_] {
                                if (life == life_) run([] {});
                              });
                            },
                        .stores = [this] { worker_->next_takes_longer(settings_.store_time); }},
      Dice(world_.seed, settings_.name, static_cast<std::uint32_t>(life_)));
  worker_ = std::make_unique<TimedWorker>(
      world_.timeline,
      [this] { return dice_.duration(disk_.pace.state_min, disk_.pace.state_max); },
      [this](const Done& done) {
        if (!done) return;
        if (!inbox_.is_closed()) return run(done);
        inbox_.deliver([this, done, life = life_] {
          if (life == life_) run(done);
        });
      });
  daemon::HostOptions options;
  options.software = "skerryd";
  options.host_label = settings_.host;
  options.incarnation = incarnation_ = dice_.u64() | 1;
  options.drain_limit = settings_.drain_limit;
  options.price = settings_.price;
  world_.memory_bytes[id()] = settings_.memory_bytes;
  for (std::uint32_t index = 0; index < settings_.slots; ++index) {
    daemon::DeviceSlot& device = options.slots.emplace_back();
    device.card = text("card-", index);
    pb::Slot& slot = device.description;
    slot.set_index(index);
    slot.set_device(settings_.device);
    slot.set_memory_bytes(settings_.memory_bytes);
  }
  if (world_.gossip != nullptr) {
    auto end = std::make_unique<MeshEnd>(world_.gossip->mesh,
                                         MeshEnd::About{.address = settings_.name,
                                                        .id = identity_.id,
                                                        .listens = settings_.listens,
                                                        .admits = {},
                                                        .boot = [this] { return now().boot; },
                                                        .wake =
                                                            [this] {
                                                              hears_peers_ = true;
                                                              inbox_.deliver([this, life = life_] {
                                                                if (life == life_) run([] {});
                                                              });
                                                            },
                                                        .overhears = {}});
    end_ = end.get();
    links_ = std::move(end);
    if (settings_.original != nullptr) world_.gossip->rules.key_is_shared(identity_.id);
  } else {
    links_ = std::make_unique<NoPeers>();
  }
  peers_ = std::make_unique<daemon::PeerParts>(daemon::PeerParts{
      .identity = *signer_,
      .coordinator_key = coordinator_identity().ed25519_key,
      .certificate = certificate_,
      .network = *links_,
      .pace = world_.gossip != nullptr ? world_.gossip->pace : silent_pace(),
      .checks = simulated_checks(),
      .look_every = world_.gossip != nullptr ? kSaysEvery : std::chrono::hours(24)});
  counter_ = std::make_unique<daemon::CardCounter>(daemon::CardCounter{
      *worker_, [this]() -> Result<std::vector<std::string>> {
        std::vector<std::string> visible;
        for (std::uint32_t index = 0; index < settings_.slots; ++index) {
          if (const std::string card = text("card-", index); !lost_cards_.contains(card))
            visible.push_back(card);
        }
        return visible;
      }});
  if (settings_.idle_limit > Duration{}) {
    options.idle_limit = settings_.idle_limit;
    idle_ = std::make_unique<FakeIdleExec>(
        world_.timeline,
        Dice(world_.seed, settings_.name + " idle", static_cast<std::uint32_t>(life_)), [this] {
          inbox_.deliver([this, life = life_] {
            if (life == life_) run([] {});
          });
        });
  }
  writes_.clear();
  exited_.clear();
  storing_.clear();
  persisted_ = 0;
  auto made = daemon::Host::make(
      {.clock = clock_,
       .transport = *client_,
       .store = disk_.store,
       .objects = *objects_,
       .engines = *engines_,
       .disk = *worker_,
       .peers = peers_.get(),
       .idle_exec = idle_.get(),
       .cards = counter_.get(),
       .stepped = [this](const daemon::Event& event,
                         const daemon::Effects& effects) { looked(event, effects); }},
      std::move(options));
  if (!made) {
    if (state_damaged_) {
      world_.trace.line(
          [&] { return text(settings_.name, " finds its saved state damaged and ends"); });
      failed_ = true;
    } else if (!may_fail(made.error())) {
      world_.violated("S16", settings_.name + " refuses its own state: " + made.error().message);
    }
    return ended(Death::kKilled);
  }
  if (state_damaged_) world_.violated("S16", settings_.name + " starts from a damaged state");
  host_ = std::move(*made);
  alarm_ = std::make_unique<Alarm>(world_.timeline, [this] {
    inbox_.deliver([this, life = life_] {
      if (life == life_) run([] {});
    });
  });
  run([this] { host_->start(); });
}

void DaemonMachine::ended(Death death) {
  if (DaemonMachine* original = settings_.original; original != nullptr && original->id() == id())
    world_.keepers[id()] = original;
  ++life_;
  alarm_.reset();
  if (world_.gossip != nullptr && host_) world_.gossip->rules.stopped(settings_.name);
  if (worker_) worker_->kill(0);
  host_.reset();
  idle_.reset();
  peers_.reset();
  if (end_ != nullptr && death == Death::kVanished) end_->vanishes();
  end_ = nullptr;
  links_.reset();
  worker_.reset();
  engines_.reset();
  objects_.reset();
  if (death == Death::kVanished) client_->vanishes();
  client_.reset();
  inbox_.clear();
  last_commit_.reset();
  at_commit_ = {};
  disk_.process_ended(dice_.u64(), death == Death::kVanished);
  world_.tell([&](Watcher& watcher) { watcher.daemon_stopped(settings_.name); });
}

void DaemonMachine::kill(Death death) {
  if (!is_up()) return;
  world_.trace.add(settings_.name, "killed");
  world_.trace.line([&] {
    return text(settings_.name,
                death == Death::kKilled ? " is killed" : " vanishes with its machine");
  });
  // What the disk was given came to its end in order, as far as it had come.
  if (worker_) worker_->kill(dice_.between(0, worker_->waiting()));
  ended(death);
}

void DaemonMachine::wipe_disk() {
  SKERRY_CHECK(!is_up(), "it runs already");
  world_.trace.line([&] { return text(settings_.name, "'s disk is lost"); });
  enrolled_ = false;
  certificate_.Clear();
  disk_.wipe();
  damaged_.clear();
  state_damaged_ = false;
  new_identity();
}

void DaemonMachine::damage_state() {
  SKERRY_CHECK(!is_up(), "it runs already");
  const auto state = disk_.kept.get(daemon::kHostStateKey);
  if (!state || !*state || (*state)->empty()) return;
  state_damaged_ = true;
  const storage::Write garbage{std::string(daemon::kHostStateKey), "\xff\xff\xff"};
  (void)disk_.kept.write({&garbage, 1}, storage::Room::kLast);
}

void DaemonMachine::copy_disk(const DaemonMachine& other) {
  SKERRY_CHECK(!is_up(), "it runs already");
  identity_ = other.identity_;
  enrolled_ = other.enrolled_;
  certificate_ = other.certificate_;
  disk_.copy_from(other.disk_);
  damaged_ = other.damaged_;
  state_damaged_ = other.state_damaged_;
}

void DaemonMachine::pause(Duration length) {
  if (!is_up() || is_paused()) return;
  inbox_.close();
  if (worker_) worker_->stop();
  world_.trace.line(
      [&] { return text(settings_.name, " is stopped for ", seconds_text(length), " s"); });
  world_.timeline.after(length, [this, life = life_] {
    if (life != life_) return;
    inbox_.open();
    world_.trace.line([&] { return text(settings_.name, " goes on"); });
    inbox_.catch_up([&] { return life == life_; });
    if (life != life_) return;
    if (worker_) worker_->go_on();
    run([] {});
  });
}

void DaemonMachine::drain() {
  world_.trace.line([&] { return text(settings_.name, " is told to drain"); });
  if (!host_) return;
  for (const daemon::SlotView& slot : host_->core().slots()) {
    const FakeEngine* const running = is_paused() ? nullptr : engines_->training_in(slot.slot);
    if (running == nullptr) continue;
    world_.tell([&](Watcher& watcher) {
      watcher.daemon_drains(settings_.name, slot, running->training().step);
    });
  }
  inbox_.deliver([this, life = life_] {
    if (life == life_) run([this] { host_->on_drain(); });
  });
}

void DaemonMachine::notice(std::optional<Duration> left, const std::string& what) {
  world_.trace.line([&] {
    return text(settings_.name, " is told: \"", what, "\"",
                left ? text(", ", human_duration(*left), " left") : "");
  });
  inbox_.deliver([this, left, what, life = life_] {
    if (life != life_) return;
    run([this, left, what] {
      const auto at = left ? std::optional(now().boot + *left) : std::nullopt;
      host_->on_notice({at, what});
    });
  });
}

// ---- Its loop ----

void DaemonMachine::came(protocol::ClientEvent event) {
  if (!host_) return enrols(event);
  const auto* received = std::get_if<protocol::Received>(&event);
  if (received != nullptr && received->endpoint == Endpoint::kBlob && is_gossip(received->bytes)) {
    hears_peers_ = true;
    if (world_.gossip != nullptr && world_.gossip->rules.tells)
      tell_refusals(world_, settings_.name, *records(), now(), received->bytes);
  }
  is_spoken_to_ = received != nullptr && received->endpoint == Endpoint::kControl;
  const std::uint64_t life = life_;
  run([&] { host_->on_transport(std::move(event)); });
  if (std::exchange(is_spoken_to_, false) && life == life_)
    world_.violated("wire", "the coordinator says what no daemon reads");
}

void DaemonMachine::enrol() {
  if (!client_ || host_) return;
  const pb::EnrolRequest request = enrol_request(identity_, settings_.name, token_);
  [[maybe_unused]] const auto sent = client_->send(Endpoint::kEnrol, request.SerializeAsString());
  world_.timeline.after(kEnrolAgain, [this, life = life_] {
    if (life == life_) enrol();
  });
}

void DaemonMachine::enrols(const protocol::ClientEvent& event) {
  if (std::holds_alternative<protocol::Opened>(event)) return enrol();
  const auto* received = std::get_if<protocol::Received>(&event);
  if (received == nullptr) return;
  auto reply = protocol::parse_enrol_reply(received->bytes);
  if (!reply)
    return world_.violated("wire", "the coordinator answers an enrolment by what nobody reads: " +
                                       reply.error().message);
  if (!reply->has_certificate()) return;
  enrolled_ = true;
  certificate_ = reply->certificate();
  client_->hang_up(Endpoint::kEnrol);
  launch();
}

// Once round the loop, after what has come. What the core throws ends the
// process.
template <class Work>
void DaemonMachine::run(const Work& work) {
  if (!host_) return;
  const std::uint64_t life = life_;
  try {
    work();
    turn();
  } catch (const std::exception& thrown) {
    world_.violated("S18", text(settings_.name, " throws: ", thrown.what()));
    if (life == life_) kill(Death::kKilled);
  }
}

void DaemonMachine::turn() {
  if (!host_->exit_code()) {
    if (std::exchange(hears_peers_, false)) {
      while (host_->poll_peers()) {
      }
    }
    host_->turn();
  }
  if (const gossip::Table* table = records()) {
    world_.gossip->rules.stepped({.name = settings_.name,
                                  .self = identity_.id,
                                  .table = *table,
                                  .links = end_->links(),
                                  .links_most = world_.gossip->pace.peers_most + 1,
                                  .now = now()});
  }
  const std::optional<int> code = host_->exit_code();
  if (!code) {
    if (disk_.is_outlived(world_.timeline.now()))
      world_.violated("S7", settings_.name + " goes on although its disk has failed");
    return alarm_->set(world_.timeline.now() + clock_.until(host_->next_turn()));
  }
  world_.trace.line([&] { return text(settings_.name, " ends with exit code ", *code); });
  failed_ = *code != daemon::kExitDone && *code != daemon::kExitRetry;
  host_->stop();
  worker_->finish();
  ended(Death::kKilled);
}

void DaemonMachine::forge(const pb::ControlRequest& request) {
  world_.network.send_to_server(settings_.name, Endpoint::kControl, request.SerializeAsString());
}

// ---- What it does ----

void DaemonMachine::looked(const daemon::Event& event, const daemon::Effects& effects) {
  check_event(event);
  const std::vector<daemon::SlotView> slots = host_->core().slots();
  const Watcher::DaemonStep step{
      settings_.name, identity_.id,  settings_.host,
      incarnation_,   host_->core(), slots,
      event,          effects,       [this](const Hash& manifest) { return has_stored(manifest); }};
  world_.tell([&](Watcher& watcher) { watcher.daemon_stepped(step); });
  for (const daemon::LogEntry& entry : effects.log) {
    if (entry.level < LogLevel::kWarning) continue;
    world_.trace.line([&] {
      return text("  ", settings_.name, " notes: ", world_.trace.readable(entry.message));
    });
  }
  for (const daemon::Write& write : effects.writes) {
    world_.trace.add(settings_.name, "state", write.state);
    writes_[write.ticket] = write.state;
  }
  for (const daemon::StoreSnapshot& order : effects.stores) storing_[order.engine] = order;
  for (const daemon::DropObject& order : effects.drops)
    world_.trace.add(settings_.name, "drops", order.manifest.raw());
  for (const pb::ControlRequest& request : effects.sends) {
    if (!request.has_commit()) continue;
    last_commit_ = request.commit();
    if (const auto action = std::exchange(at_commit_, {})) action(*last_commit_);
  }
}

// What its core hears is so.
void DaemonMachine::check_event(const daemon::Event& event) {
  if (const auto* persisted = std::get_if<daemon::Persisted>(&event)) {
    if (persisted->ticket < persisted_)
      world_.violated("once", text(settings_.name, " hears that its state ", persisted->ticket,
                                   " is durable after a newer one"));
    persisted_ = persisted->ticket;
    writes_.erase(writes_.begin(), writes_.lower_bound(persisted_));
    const auto kept = disk_.kept.get(daemon::kHostStateKey);
    const bool is_there = kept && *kept && std::ranges::any_of(writes_, [&](const auto& each) {
                            return each.second == **kept;
                          });
    if (!is_there)
      world_.violated("S7", text(settings_.name, " hears that its state ", persisted_,
                                 " is durable; it is not"));
  } else if (const auto* exited = std::get_if<daemon::EngineExited>(&event)) {
    if (!exited_.insert(exited->engine).second)
      world_.violated("once",
                      text(settings_.name, " hears twice of the end of engine ", exited->engine));
  } else if (const auto* stored = std::get_if<daemon::ObjectStored>(&event)) {
    const Object* const object = world_.library.find(stored->manifest);
    if (!objects_->has(stored->manifest)) {
      world_.violated("S6", text(settings_.name, " hears that an object is stored which is not"));
    } else if (object != nullptr && disk_.holds(*object)) {
      damaged_.erase(stored->manifest);
    } else if (object != nullptr && !damaged_.contains(stored->manifest)) {
      world_.violated("S6",
                      text(settings_.name, " hears that an object is stored, and it is not whole"));
    }
    if (object != nullptr && object->checkpoint) {
      world_.trace.line([&] {
        return text(settings_.name, " has fetched ", world_.trace.object(stored->manifest.raw()));
      });
    }
  } else if (std::holds_alternative<daemon::Reply>(event)) {
    is_spoken_to_ = false;
  } else if (const auto* snapshot = std::get_if<daemon::SnapshotStored>(&event)) {
    check_snapshot(*snapshot);
  }
}

// A start finds whole objects only. A checkpoint may have been stored just
// before the process ended, and its core has not heard of it.
void DaemonMachine::check_found(const storage::ObjectInfo& info) {
  if (damaged_.contains(info.name)) return;
  const Object* const object = world_.library.find(info.name);
  const bool is_checkpoint = info.kind == storage::ManifestKind::kCheckpoint;
  if (object == nullptr && !is_checkpoint) return;  // the coordinator made it
  if (object != nullptr ? disk_.holds(*object) : add_to_library(info.name).has_value()) return;
  world_.violated("S6", text("after a start ", settings_.name,
                             "'s disk holds half an object under a whole one's name"));
}

Result<Training> DaemonMachine::add_to_library(const Hash& checkpoint) {
  ASSIGN_OR_RETURN(Object object, disk_.checkpoint(checkpoint));
  ASSIGN_OR_RETURN(const Training training, decode_training(object.content));
  object.weights = training.weights;
  if (world_.library.find(checkpoint) == nullptr) world_.library.add_checkpoint(std::move(object));
  return training;
}

// What was stored is what the core ordered, and goes into the library.
void DaemonMachine::check_snapshot(const daemon::SnapshotStored& event) {
  const daemon::StoreSnapshot& order = storing_[event.engine];
  const Hash name = *Hash::from_raw(event.object.manifest());
  ++snapshots_stored_;
  world_.trace.add(settings_.name, "stored", name.raw());
  const Result<Training> training = add_to_library(name);
  if (!training)
    return world_.violated(
        "weights", text(settings_.name, " has stored a snapshot: ", training.error().message));
  if (training->step != order.step || training->expert != order.expert ||
      training->attempt != order.attempt) {
    world_.violated("weights", text(settings_.name, " stores a snapshot of step ", training->step,
                                    " as step ", order.step));
  }
  world_.trace.name_object(name, text(expert_text(order.run, order.expert, world_.trace), "@",
                                      order.step, "e", Epoch(order.epoch).counter()));
  world_.trace.line(
      [&] { return text(settings_.name, " has stored ", world_.trace.object(name.raw())); });
}

// ---- Its cards ----

bool DaemonMachine::lose_card(Dice& dice) {
  const std::string card = engines_ ? engines_->shared_card(dice) : "";
  if (card.empty()) return false;
  world_.trace.line([&] { return text(settings_.name, " loses ", card); });
  lost_cards_.insert(card);
  engines_->lose_card(card);
  return true;
}

bool DaemonMachine::bring_back_cards() { return !std::exchange(lost_cards_, {}).empty(); }

// ---- Its disk ----

bool DaemonMachine::lose_object() {
  if (!objects_) return false;
  for (const storage::ObjectInfo& info : objects_->list()) {
    if (info.kind == storage::ManifestKind::kCheckpoint && !damaged_.contains(info.name))
      return lose_object(info.name);
  }
  return false;
}

bool DaemonMachine::lose_object(const Hash& manifest) {
  if (!has_stored(manifest) || !disk_.damage(manifest)) return false;
  world_.trace.line([&] {
    return text(settings_.name, "'s disk damages ", world_.trace.object(manifest.raw()));
  });
  return damaged_.insert(manifest).second;
}

void DaemonMachine::fail_sync(Dice& dice) {
  const auto effect =
      dice.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  disk_.store.fail_at(storage::StoreOperation::kWrite, static_cast<unsigned>(dice.between(1, 3)),
                      ErrorCode::kIo, effect);
}

void DaemonMachine::fail_file(Dice& dice) {
  const auto effect =
      dice.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  const auto operation = static_cast<storage::FileOperation>(dice.between(2, 5));
  const auto nth = static_cast<unsigned>(dice.between(1, 4));
  disk_.files.fail_at(operation, nth, ErrorCode::kIo, effect);
}

}  // namespace skerry::simulation
