// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/coordinator_machine.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "tests/simulation/describe.h"

namespace skerry::simulation {
namespace {

constexpr Duration kBooted = seconds(1000);
constexpr Duration kStartsAgain = seconds(2);

std::chrono::nanoseconds cpu_time() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

}  // namespace

CoordinatorMachine::CoordinatorMachine(World& world, coordinator::Config config)
    : world_(world),
      config_(std::move(config)),
      dice_(world.seed, "coordinator"),
      clock_(world.timeline, kBooted, 0) {
  SKERRY_CHECK(config_.check().has_value(), "a configuration whose times do not fit");
  disk_.kept.mirrored = coordinator::kStatePrefix;
  disk_.kept.written = [this](const std::string& key) {
    if (key == gossip::kTableKey && world_.gossip != nullptr)
      world_.gossip->rules.saved(kCoordinatorAddress, signer_.node_id());
  };
  world_.trace.name_node(admin_.id, "admin");
  world_.key_names[admin_.x25519_key] = "admin";
  world_.is_stored = [this](const Hash& manifest) { return is_stored(manifest); };
}

CoordinatorMachine::~CoordinatorMachine() {
  if (!host_) return;
  state_disk_->kill(0);
  object_disk_->kill(0);
  host_.reset();
}

bool CoordinatorMachine::is_stored(const Hash& manifest) const {
  return (objects_ && objects_->has(manifest)) || damaged_.contains(manifest);
}

const gossip::Table* CoordinatorMachine::records() const {
  return host_ && world_.gossip != nullptr ? &host_->records() : nullptr;
}

// ---- Life ----

void CoordinatorMachine::start() {
  SKERRY_CHECK(!is_up(), "it runs already");
  ++life_;
  inbox_.clear();
  keys_.clear();
  enrols_.clear();
  has_begun_ = false;
  world_.trace.add("coordinator", "start");
  world_.trace.line([] { return std::string("coordinator starts"); });
  server_ = std::make_unique<ServerEnd>(
      world_.network, [this](protocol::ServerEvent event) { came(std::move(event)); });
  // A disk that fails at the start, or is full: it is started again.
  const auto fails = [this](const std::string& what, const Error& error) {
    const bool may_fail =
        disk_.store.failed() || error.code == ErrorCode::kIo || error.code == ErrorCode::kExhausted;
    if (!may_fail) world_.violated("S16", "the coordinator refuses " + what + ": " + error.message);
    world_.trace.line([&] { return text("coordinator cannot start: ", error.message); });
    ended(Death::kKilled);
    world_.timeline.after(kStartsAgain, [this, life = life_] {
      if (life == life_) start();
    });
  };
  auto objects = storage::ObjectStore::open(disk_.store, kObjectsFolder,
                                            storage::Checkpoints::kInStore, disk_.files);
  if (!objects) return fails("its own disk", objects.error());
  objects_ = std::move(*objects);
  for (const storage::ObjectInfo& info : objects_->list()) {
    const Object* const object = world_.library.find(info.name);
    if (!damaged_.contains(info.name) && (object == nullptr || !disk_.holds(*object)))
      world_.violated("S6", "after a start the disk holds half an object under a whole one's name");
  }
  const auto finished = [this](const Done& done) {
    if (!done) return;
    const auto follows = [this](const Done& what) {
      run([&] {
        host_->woken();
        what();
      });
    };
    if (!inbox_.is_closed()) return follows(done);
    inbox_.deliver([follows, done, life = life_, this] {
      if (life == life_) follows(done);
    });
  };
  state_disk_ = std::make_unique<TimedWorker>(
      world_.timeline,
      [this] { return dice_.duration(disk_.pace.state_min, disk_.pace.state_max); }, finished);
  object_disk_ = std::make_unique<TimedWorker>(
      world_.timeline,
      [this] { return dice_.duration(disk_.pace.object_min, disk_.pace.object_max); }, finished);
  rng_ = std::make_unique<DrawnRng>(
      Dice(world_.seed, "coordinator's random", static_cast<std::uint32_t>(life_)));
  coordinator::HostOptions options;
  options.config = config_;
  options.first_admin = {admin_.id, admin_.ed25519_key, admin_.x25519_key, "admin"};
  options.gossip.pace = world_.gossip != nullptr ? world_.gossip->pace : silent_pace();
  options.gossip.checks = simulated_checks();
  options.facts_every = world_.gossip != nullptr ? kSaysEvery : std::chrono::hours(24);
  options.stepped = [this](const coordinator::Core& core, const coordinator::Event* event,
                           const coordinator::Effects& effects) { looked(core, event, effects); };
  options.sending = [this](const coordinator::Send& message) { sends(message); };
  auto made = coordinator::Host::make({.transport = *server_,
                                       .store = disk_.store,
                                       .objects = *objects_,
                                       .identity = signer_,
                                       .authority = authority_,
                                       .clock = clock_,
                                       .rng = *rng_,
                                       .state_disk = *state_disk_,
                                       .object_disk = *object_disk_,
                                       .folder = kObjectsFolder,
                                       .files = disk_.files},
                                      std::move(options));
  if (!made) return fails("its own state", made.error());
  host_ = std::move(*made);
  for (const coordinator::NamedObject& object : host_->core().objects()) {
    if (object.complete && !is_stored(object.manifest))
      world_.violated(
          "S4", text(object.needed_by, " is named by the durable state and not whole on the disk"));
  }
  if (host_->first_start()) first_start_ = host_->first_start();
  alarm_ = std::make_unique<Alarm>(world_.timeline, [this] {
    inbox_.deliver([this, life = life_] {
      if (life == life_) run([] {});
    });
  });
  host_->begin();
  turn();
}

void CoordinatorMachine::kill(Death death) {
  if (!is_up()) return;
  world_.trace.add("coordinator", "killed");
  world_.trace.line([&] {
    return text("coordinator ",
                death == Death::kKilled ? "is killed" : "vanishes with its machine");
  });
  // What the disk was doing came to its end, or did not.
  for (TimedWorker* worker : {state_disk_.get(), object_disk_.get()})
    worker->kill(dice_.between(0, std::min<std::size_t>(worker->waiting(), 1)));
  ended(death);
}

void CoordinatorMachine::ended(Death death) {
  alarm_.reset();
  if (state_disk_) state_disk_->kill(0);
  if (object_disk_) object_disk_->kill(0);
  if (world_.gossip != nullptr) world_.gossip->rules.stopped(kCoordinatorAddress);
  host_.reset();
  object_disk_.reset();
  state_disk_.reset();
  objects_.reset();
  server_.reset();
  inbox_.clear();
  ++life_;
  disk_.process_ended(dice_.u64(), death == Death::kVanished);
  world_.tell([](Watcher& watcher) { watcher.coordinator_stopped(); });
}

void CoordinatorMachine::pause(Duration length) {
  if (!host_ || is_paused()) return;
  inbox_.close();
  state_disk_->stop();
  object_disk_->stop();
  due_ = std::max(alarm_->at(), world_.timeline.now());
  world_.trace.line(
      [&] { return text("coordinator stands still for ", seconds_text(length), " s"); });
  world_.timeline.after(length, [this, life = life_] {
    if (life != life_) return;
    inbox_.open();
    const Duration lag = world_.timeline.now() - due_;
    world_.tell([&](Watcher& watcher) { watcher.coordinator_stood_still(lag); });
    is_late_ = true;
    run([this] { host_->woken(); });
    if (life == life_) inbox_.catch_up([&] { return life == life_; });
    is_late_ = false;
    if (life != life_) return;
    state_disk_->go_on();
    object_disk_->go_on();
  });
}

// Once round the loop, after what has come. What the core throws ends the
// process.
template <class Work>
void CoordinatorMachine::run(const Work& work) {
  if (!host_) return;
  const std::chrono::nanoseconds before = measures_ ? cpu_time() : std::chrono::nanoseconds{};
  const std::uint64_t life = life_;
  try {
    work();
    turn();
  } catch (const std::exception& thrown) {
    world_.violated("S18", text("the coordinator throws: ", thrown.what()));
    if (life == life_) kill();
  }
  if (measures_) host_time_ += cpu_time() - before;
}

void CoordinatorMachine::turn() {
  host_->woken();
  host_->every_now_and_then();
  const Duration wait = std::max<Duration>(host_->wait(), milliseconds(1));
  if (const gossip::Table* table = records()) {
    world_.gossip->rules.stepped({.name = kCoordinatorAddress,
                                  .self = signer_.node_id(),
                                  .table = *table,
                                  .links = server_->blob_connections(),
                                  .links_most = kCoordinatorConnections,
                                  .now = now()});
  }
  if (!host_->failure()) {
    if (disk_.is_outlived(world_.timeline.now()))
      world_.violated("S7", "the coordinator goes on although its disk has failed");
    return alarm_->set(world_.timeline.now() + clock_.until(now().boot + wait));
  }
  world_.trace.line([&] { return text("coordinator ends: ", host_->failure()->message); });
  ended(Death::kKilled);
}

// ---- What it hears and says ----

void CoordinatorMachine::came(protocol::ServerEvent event) {
  if (!host_) return;
  if (inbox_.is_closed()) told(event);
  if (const auto* closed = std::get_if<protocol::Closed>(&event);
      closed != nullptr && closed->connection.endpoint == Endpoint::kControl) {
    world_.trace.line([&] {
      const auto key = keys_.find(closed->connection.id);
      return key == keys_.end() ? "" : world_.name_of_key(key->second) + "'s connection is closed";
    });
    world_.tell([&](Watcher& watcher) { watcher.coordinator_loses(closed->connection.id); });
  }
  if (const auto* came = std::get_if<protocol::Incoming>(&event)) {
    keys_[came->connection.id] = came->public_key;
    if (came->connection.endpoint == Endpoint::kBlob && world_.gossip != nullptr &&
        world_.gossip->rules.tells && is_gossip(came->bytes))
      tell_refusals(world_, kCoordinatorAddress, host_->records(), now(), came->bytes);
  }
  if (!inbox_.is_closed()) return run([&] { host_->on_transport(std::move(event)); });
  inbox_.deliver([this, event = std::move(event), life = life_]() mutable {
    if (life == life_) run([&] { host_->on_transport(std::move(event)); });
  });
}

// It has reached the process, which stands still and reads it later.
void CoordinatorMachine::told(const protocol::ServerEvent& event) {
  const auto* came = std::get_if<protocol::Incoming>(&event);
  if (came == nullptr || came->connection.endpoint != Endpoint::kControl) return;
  if (const auto request = protocol::parse_control_request(came->bytes))
    world_.tell([&](Watcher& watcher) {
      watcher.coordinator_hears(came->connection.id, came->public_key, *request);
    });
}

// A key that asks to be readmitted says no name.
std::string CoordinatorMachine::enrolling(const pb::EnrolRequest& request,
                                          const std::string& key) const {
  return request.name().empty() ? world_.name_of_key(key) : request.name();
}

void CoordinatorMachine::looked(const coordinator::Core& core, const coordinator::Event* event,
                                const coordinator::Effects& effects) {
  if (!std::exchange(has_begun_, true))
    world_.tell([&](Watcher& watcher) { watcher.coordinator_started(core, durable()); });
  if (event != nullptr) {
    if (const auto* received = std::get_if<coordinator::Received>(event)) {
      world_.trace.line([&] {
        const std::string what = describe(received->request, world_.trace);
        return what.empty() ? what
                            : text(world_.name_of_key(received->key), " → coordinator: ", what);
      });
      if (!is_late_)
        world_.tell([&](Watcher& watcher) {
          watcher.coordinator_hears(received->connection, received->key, received->request);
        });
    } else if (const auto* enrol = std::get_if<coordinator::EnrolReceived>(event)) {
      world_.trace.line(
          [&] { return text(enrolling(enrol->request, enrol->key), " → coordinator: Enrol"); });
      enrols_[enrol->connection] = enrol->request;
    } else if (const auto* stored = std::get_if<coordinator::ObjectStored>(event)) {
      check_stored(*stored);
    } else if (const auto* damaged = std::get_if<coordinator::ObjectDamaged>(event)) {
      if (!damaged_.contains(damaged->manifest) && !disk_.flips())
        world_.violated("S6", "the coordinator lost an object that its disk has kept");
      damaged_.insert(damaged->manifest);
    } else if (const auto* away = std::get_if<coordinator::TurnedAway>(event)) {
      if (away->why.find("breaks the protocol") != std::string::npos)
        world_.violated("wire", "a client says what no coordinator reads: " + away->detail);
    }
  }
  for (const auto& write : effects.batch.writes)
    world_.trace.add("coordinator", write.key, write.value.value_or(""));
  core.experts(experts_);
  const Watcher::CoordinatorStep step{core, experts_, event, effects, durable()};
  world_.tell([&](Watcher& watcher) { watcher.coordinator_stepped(step); });
  for (const coordinator::Drop& drop : effects.drops) {
    world_.trace.add("coordinator", "drops", drop.manifest.raw());
    world_.tell([&](Watcher& watcher) { watcher.coordinator_drops(drop.manifest, durable()); });
  }
}

// What the core hears to be stored is on the disk, with the bytes of its name.
void CoordinatorMachine::check_stored(const coordinator::ObjectStored& event) {
  if (host_ == nullptr) return;  // it starts, and its disk was looked at
  world_.trace.add("coordinator", "stored", event.manifest.raw());
  world_.trace.line(
      [&] { return text("coordinator has stored ", world_.trace.object(event.manifest.raw())); });
  const Object* const object = world_.library.find(event.manifest);
  if (object == nullptr || !objects_->has(event.manifest))
    return world_.violated("S6", "the coordinator hears that an object is stored which is not");
  if (disk_.holds(*object)) {
    damaged_.erase(event.manifest);
  } else if (!damaged_.contains(event.manifest)) {
    world_.violated("S6", "the coordinator hears that an object is stored, and it is not whole");
  }
}

void CoordinatorMachine::sends(const coordinator::Send& message) {
  const auto key = keys_.find(message.connection);
  if (key == keys_.end())
    return world_.violated("wire", "the coordinator answers a connection that never spoke");
  if (message.endpoint == coordinator::Endpoint::kEnrol) {
    const auto& reply = std::get<pb::EnrolReply>(message.message);
    const pb::EnrolRequest& enrol = enrols_[message.connection];
    world_.tell(
        [&](Watcher& watcher) { watcher.coordinator_sends(key->second, enrol, reply, durable()); });
    world_.trace.line([&] {
      return text("coordinator → ", enrolling(enrol, key->second), ": ",
                  reply.has_error()
                      ? "Error " + reply.error().code() + ": " + reply.error().message()
                      : "Certificate");
    });
    return;
  }
  const auto& reply = std::get<pb::ControlReply>(message.message);
  world_.tell([&](Watcher& watcher) { watcher.coordinator_sends(key->second, reply, durable()); });
  if (reply.ByteSizeLong() > protocol::kControlMessageBytes)
    world_.violated("S15", "a reply over the size limit");
  world_.trace.line([&] {
    const std::string what = describe(reply, world_.trace);
    return what.empty() ? what
                        : text("coordinator → ", world_.name_of_key(key->second), ": ", what);
  });
}

// ---- Its disk ----

// As the coordinator's commands for a backup and for a restore do.
std::shared_ptr<const Disk> CoordinatorMachine::copied(
    Disk& from, const std::optional<coordinator::Restore>& restore, std::set<Hash>& damaged) {
  auto to = std::make_shared<Disk>();
  to->kept.mirrored = coordinator::kStatePrefix;
  const auto view = storage::ObjectStore::view(from.kept, kObjectsFolder,
                                               storage::Checkpoints::kInStore, from.kept_files);
  const auto target = storage::ObjectStore::open(to->kept, kObjectsFolder,
                                                 storage::Checkpoints::kInStore, to->kept_files);
  SKERRY_CHECK(view && target, "a disk in memory can be read");
  const auto outcome = coordinator::copy_data({from.kept, **view}, {to->kept, **target}, authority_,
                                              {world_.timeline.now(), wall_ms()}, restore, true);
  if (!outcome) {
    world_.violated("S16", "the coordinator's disk cannot be copied: " + outcome.error().message);
    return nullptr;
  }
  for (const Hash& object : outcome->lacking) {
    if (damaged.insert(object).second)
      world_.violated("S4", "a copy lacks an object that the coordinator's disk has");
  }
  return to;
}

CoordinatorMachine::Backup CoordinatorMachine::backup() {
  Backup backup{nullptr, damaged_};
  backup.disk = copied(disk_, std::nullopt, backup.damaged);
  return backup;
}

void CoordinatorMachine::restore(const Backup& backup) {
  SKERRY_CHECK(!is_up(), "it runs already");
  // On another machine, whose clock is right.
  const coordinator::Restore restore{
      .unix_ms = kEpochStart + world_.timeline.now() / milliseconds(1),
      .tokens = coordinator::Core::Tokens::kExpire};
  Disk from;
  from.copy_from(*backup.disk);
  damaged_ = backup.damaged;
  const std::shared_ptr<const Disk> made = copied(from, restore, damaged_);
  if (made == nullptr) return;
  disk_.copy_from(*made);
  if (world_.gossip != nullptr) world_.gossip->rules.disk_lost(signer_.node_id());
  world_.trace.line([&] { return std::string("coordinator is restored from a backup"); });
  world_.tell([&](Watcher& watcher) { watcher.coordinator_restored(durable()); });
}

std::optional<Hash> CoordinatorMachine::damage_object(Dice& dice) {
  if (!host_ || is_paused()) return std::nullopt;
  const std::vector<storage::ObjectInfo> all = objects_->list();
  if (all.empty()) return std::nullopt;
  const Hash victim = all[dice.between(0, all.size() - 1)].name;
  if (!disk_.damage(victim)) return std::nullopt;
  world_.trace.line(
      [&] { return text("coordinator's disk damages ", world_.trace.object(victim.raw())); });
  damaged_.insert(victim);
  return victim;
}

void CoordinatorMachine::bring_back_objects() {
  if (damaged_.empty()) return;
  kill();
  for (const Hash& object : std::exchange(damaged_, {})) disk_.repair(world_.library.at(object));
  start();
}

void CoordinatorMachine::fail_sync(Dice& dice) {
  const auto operation =
      dice.chance(0.7) ? storage::StoreOperation::kWrite : storage::StoreOperation::kFlush;
  const auto effect =
      dice.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  disk_.store.fail_at(operation, static_cast<unsigned>(dice.between(1, 2)), ErrorCode::kIo, effect);
}

void CoordinatorMachine::fail_file(Dice& dice) {
  const auto effect =
      dice.chance(0.5) ? storage::FailedEffect::kNone : storage::FailedEffect::kApplied;
  if (dice.chance(0.7)) {
    const auto operation =
        dice.chance(0.5) ? storage::StoreOperation::kPutChunk : storage::StoreOperation::kFlush;
    disk_.store.fail_at(operation, 1, ErrorCode::kIo, effect);
  } else {
    disk_.files.fail_at(static_cast<storage::FileOperation>(dice.between(2, 5)), 1, ErrorCode::kIo,
                        effect);
  }
}

}  // namespace skerry::simulation
