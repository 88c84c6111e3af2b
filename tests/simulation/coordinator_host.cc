// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/coordinator_host.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/validate.h"
#include "tests/planted/planted.h"
#include "tests/simulation/batch_log.h"
#include "tests/simulation/describe.h"
#include "tests/simulation/gossip_side.h"

namespace skerry::simulation {
namespace {

constexpr Duration kSourceTimeout = seconds(1);
constexpr Duration kLookEvery = seconds(1);
constexpr unsigned kLooksPerKeeping = 60;  // of gossip's records

std::chrono::nanoseconds cpu_time() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

}  // namespace

void CoordinatorHost::CountedRng::fill(std::span<unsigned char> out) {
  for (unsigned char& byte : out) byte = static_cast<unsigned char>(dice_.u64());
}

CoordinatorHost::CoordinatorHost(World& world, coordinator::Config config)
    : world_(world),
      config_(config),
      dice_(world.seed, "coordinator"),
      events_([this](const coordinator::Event& event) { step(event); }) {
  SKERRY_CHECK(config_.check().has_value(), "a configuration whose times do not fit");
  world_.trace.name_node(admin_.id, "admin");
  world_.key_names[admin_.x25519_key] = "admin";
  world_.is_stored = [this](const Hash& manifest) {
    return has_object(manifest) || lost_.contains(manifest);
  };
}

CoordinatorHost::~CoordinatorHost() = default;

Now CoordinatorHost::now() const {
  const Duration time = world_.timeline.now();
  const auto drifted = static_cast<std::int64_t>(static_cast<double>(time.count()) * (1 + drift_));
  return {seconds(1000) + Duration(drifted),
          kEpochStart + time / milliseconds(1) + wall_offset_ms_};
}

void CoordinatorHost::start() {
  SKERRY_CHECK(!is_up(), "it runs already");
  ++life_;
  batches_.clear();
  performer_ = coordinator::Performer(*this);
  inbox_.clear();
  peers_.clear();
  allowed_.clear();
  transfers_.clear();
  writing_ = false;
  rng_ = std::make_unique<CountedRng>(
      Dice(world_.seed, "coordinator's random", static_cast<std::uint32_t>(life_)));
  std::vector<coordinator::KeyValue> state;
  for (const auto& [key, value] : durable_) state.push_back({key, value});
  auto loaded = coordinator::Core::load(config_, *rng_, authority_, state, now());
  if (!loaded) {
    world_.violated("S16", "the coordinator refuses its own state: " + loaded.error().message);
    return;
  }
  core_ = std::move(*loaded);
  world_.trace.add("coordinator", "start");
  world_.trace.line([&] { return std::string("coordinator starts"); });
  for (const coordinator::NamedObject& object : core_->objects()) {
    if (object.complete && !has_object(object.manifest) && !lost_.contains(object.manifest)) {
      world_.violated(
          "S4", text(object.needed_by, " is named by the durable state and not whole on the disk"));
    }
  }
  const bool is_first = core_->is_empty();
  coordinator::Effects effects = core_->start(now());
  world_.tell([&](Watcher& watcher) { watcher.coordinator_started(*core_, durable_); });
  const auto carry_out_first = [this](coordinator::Effects first) {
    tell_stepped(nullptr, first);
    events_.during([&] { performer_.perform(std::move(first), core_->persisted_batch()); });
  };
  world_.network.server_up(*this);
  carry_out_first(std::move(effects));
  if (is_first) {
    coordinator::Effects first;
    const coordinator::FirstAdmin admin{admin_.id, admin_.ed25519_key, admin_.x25519_key, "admin"};
    first_start_ = core_->first_start(admin, now(), first);
    carry_out_first(std::move(first));
  }
  feed(coordinator::DiskFree{free_bytes_});
  for (const auto& [manifest, checkpoint] : std::map(objects_)) feed(stored_event(manifest));
  for (const auto& [manifest, checkpoint] : std::map(lost_))
    feed(coordinator::ObjectDamaged{manifest});
  if (world_.gossip != nullptr) start_gossip();
}

void CoordinatorHost::start_gossip() {
  const auto admits = [this](const NodeId& node) {
    const auto key = world_.gossip->keys.find(node);
    return key != world_.gossip->keys.end() && allowed_.contains(key->second);
  };
  GossipProcess process{
      kCoordinatorAddress, [this] { return now(); },
      [this](std::function<void()> action) { inbox_.deliver(std::move(action)); }};
  const std::uint64_t seed = Dice(world_.seed, "herald", static_cast<std::uint32_t>(life_)).u64();
  gossip_ = std::make_unique<CoordinatorGossip>(world_, *world_.gossip, std::move(process), admits,
                                                seed, records_);
  kept_incarnation_ = 0;
  look_around(0);
}

void CoordinatorHost::look_around(unsigned looks) {
  world_.timeline.after(kLookEvery, [this, life = life_, looks] {
    if (life != life_) return;
    inbox_.deliver([this, looks] {
      if (const auto heard = gossip_->look(*core_)) feed(*heard);
      for (const Hash& object : core_->lost_objects()) {
        if (const auto holders = gossip_->holders(object); !holders.empty())
          feed(coordinator::HeldElsewhere{object, holders});
      }
      const bool is_due = looks % kLooksPerKeeping == kLooksPerKeeping - 1;
      if (!is_due && gossip_->incarnation() == kept_incarnation_) return;
      kept_incarnation_ = gossip_->incarnation();
      records_ = gossip_->save();
    });
    look_around(looks + 1);
  });
}

void CoordinatorHost::kill() {
  if (!is_up()) return;
  world_.trace.add("coordinator", "killed");
  world_.trace.line([&] { return std::string("coordinator is killed"); });
  crash_disk();
  gossip_.reset();
  core_.reset();
  events_.clear();
  ++life_;
  world_.network.server_down();
  world_.tell([](Watcher& watcher) { watcher.coordinator_stopped(); });
}

// What was not synced may have reached the disk up to any byte; a torn record
// at the end is known by its hash.
void CoordinatorHost::crash_disk() {
  std::string log;
  for (const coordinator::Batch& batch : batches_) log += encode_batch(batch.writes);
  if (planted("batches_reordered") && batches_.size() > 1) {
    became_durable(batches_[1]);
  } else {
    log.resize(dice_.between(0, log.size()));
    for (const auto& writes : decode_batches(log)) became_durable({.number = 0, .writes = writes});
  }
  batches_.clear();
}

void CoordinatorHost::set_free_bytes(std::uint64_t bytes) {
  free_bytes_ = bytes;
  inbox_.deliver([this] { feed(coordinator::DiskFree{free_bytes_}); });
}

void CoordinatorHost::restore(const Backup& backup) {
  SKERRY_CHECK(!is_up(), "it runs already");
  std::vector<coordinator::KeyValue> state;
  for (const auto& [key, value] : backup.state) state.push_back({key, value});
  // On another machine, whose clock is right.
  auto raised =
      coordinator::Core::restored(state, kEpochStart + world_.timeline.now() / milliseconds(1),
                                  coordinator::Core::Tokens::kExpire);
  if (!raised)
    return world_.violated("S16", "a backup cannot be restored: " + raised.error().message);
  durable_.clear();
  for (auto& [key, value] : *raised) durable_[key] = std::move(value);
  objects_ = backup.objects;
  lost_ = backup.lost;
  broken_.clear();
  records_.clear();
  if (world_.gossip != nullptr) world_.gossip->rules.disk_lost(coordinator_identity().id);
  world_.trace.line([&] { return std::string("coordinator is restored from a backup"); });
  world_.tell([&](Watcher& watcher) { watcher.coordinator_restored(durable_); });
}

bool CoordinatorHost::damage_object(Dice& dice) {
  if (!is_up() || is_paused() || objects_.empty()) return false;
  const auto victim = std::next(objects_.begin(),
                                static_cast<std::ptrdiff_t>(dice.between(0, objects_.size() - 1)));
  const Hash manifest = victim->first;
  world_.trace.line(
      [&] { return text("coordinator's disk damages ", world_.trace.object(manifest.raw())); });
  lost_.insert(*victim);
  objects_.erase(victim);
  feed(coordinator::ObjectDamaged{manifest});
  return true;
}

void CoordinatorHost::bring_back_objects() {
  for (const auto& [manifest, checkpoint] : std::exchange(lost_, {})) {
    objects_[manifest] = checkpoint;
    inbox_.deliver([this, manifest = manifest] { feed(stored_event(manifest)); });
  }
}

void CoordinatorHost::pause(Duration length) {
  if (!is_up() || is_paused()) return;
  inbox_.close();
  paused_at_ = world_.timeline.now();
  world_.trace.line(
      [&] { return text("coordinator stands still for ", seconds_text(length), " s"); });
  world_.timeline.after(length, [this, life = life_] {
    if (life != life_) return;
    inbox_.open();
    const Duration lag = world_.timeline.now() - paused_at_;
    world_.tell([&](Watcher& watcher) { watcher.coordinator_stood_still(lag); });
    feed(coordinator::LoopLag{lag});
    inbox_.catch_up([&] { return life == life_; });
  });
}

void CoordinatorHost::step(const coordinator::Event& event) {
  if (!is_up()) return;
  const std::chrono::nanoseconds before = measures_ ? cpu_time() : std::chrono::nanoseconds{};
  coordinator::Effects effects;
  try {
    effects = core_->step(event, now());
  } catch (const std::exception& thrown) {
    world_.violated("S18", text("the coordinator's core throws: ", thrown.what()));
    return kill();
  }
  if (measures_) core_time_ += cpu_time() - before;
  tell_stepped(&event, effects);
  performer_.perform(std::move(effects), core_->persisted_batch());
}

void CoordinatorHost::tell_stepped(const coordinator::Event* event,
                                   const coordinator::Effects& effects) {
  core_->experts(experts_);
  const Watcher::CoordinatorStep step{*core_, experts_, event, effects, durable_};
  world_.tell([&](Watcher& watcher) { watcher.coordinator_stepped(step); });
}

void CoordinatorHost::change_roster(const std::vector<coordinator::RosterChange>& changes) {
  for (const auto& change : changes) {
    if (change.allowed) {
      allowed_.insert(change.key);
    } else {
      allowed_.erase(change.key);
      world_.network.throw_out(change.key);
    }
  }
}

void CoordinatorHost::wake_at(Duration boot) {
  const std::uint64_t tick = ++tick_;
  const Duration wait = std::max(boot - now().boot, Duration(milliseconds(1)));
  world_.timeline.after(wait, [this, tick, life = life_] {
    if (life != life_ || tick != tick_) return;
    inbox_.deliver([this] { feed(coordinator::Tick{}); });
  });
}

// ---- Disk ----

void CoordinatorHost::write(coordinator::Batch batch) {
  for (const auto& write : batch.writes)
    world_.trace.add("coordinator", write.key, write.value.value_or(""));
  batches_.push_back(std::move(batch));
  write_next();
}

void CoordinatorHost::write_next() {
  if (writing_ || batches_.empty()) return;
  writing_ = true;
  world_.timeline.after(dice_.duration(disk_.write_min, disk_.write_max), [this, life = life_] {
    if (life != life_) return;
    writing_ = false;
    const bool fails = std::exchange(disk_.sync_fails, false);
    if (fails && !planted("sync_retried")) {
      world_.trace.line([&] { return std::string("coordinator cannot sync its disk and ends"); });
      return kill();
    }
    const coordinator::Batch batch = std::move(batches_.front());
    batches_.pop_front();
    if (!fails) became_durable(batch);
    write_next();
    inbox_.deliver([this, number = batch.number] { feed(coordinator::Persisted{number}); });
  });
}

void CoordinatorHost::became_durable(const coordinator::Batch& batch) {
  for (const auto& write : batch.writes) {
    if (write.value) {
      durable_[write.key] = *write.value;
    } else {
      durable_.erase(write.key);
    }
  }
}

void CoordinatorHost::drop(const coordinator::Drop& order) {
  world_.tell([&](Watcher& watcher) { watcher.coordinator_drops(order.manifest, durable_); });
  world_.trace.add("coordinator", "drops", order.manifest.raw());
  objects_.erase(order.manifest);
  lost_.erase(order.manifest);
  broken_.erase(order.manifest);
}

// ---- Network ----

bool CoordinatorHost::admits(Endpoint endpoint, const std::string& key) const {
  return is_up() && (endpoint == Endpoint::kEnrol || allowed_.contains(key));
}

void CoordinatorHost::received(const ConnectionId& connection, Endpoint endpoint,
                               const std::string& key, const std::string& bytes) {
  peers_[connection].key = key;
  if (endpoint == Endpoint::kEnrol) {
    auto request = protocol::parse_enrol_request(bytes);
    if (!request)
      return world_.violated(
          "wire", "a client enrols by what no coordinator reads: " + request.error().message);
    world_.trace.line([&] { return text(request->name(), " → coordinator: Enrol"); });
    peers_[connection].enrol = *request;
    return inbox_.deliver([this, connection, key, message = std::move(*request)] {
      feed(coordinator::EnrolReceived{connection, key, message});
    });
  }
  auto request = protocol::parse_control_request(bytes);
  if (!request)
    return world_.violated("wire",
                           "a client says what no coordinator reads: " + request.error().message);
  world_.trace.line([&] {
    const std::string what = describe(*request, world_.trace);
    return what.empty() ? what : text(world_.name_of_key(key), " → coordinator: ", what);
  });
  world_.tell([&](Watcher& watcher) { watcher.coordinator_hears(connection, key, *request); });
  inbox_.deliver([this, connection, key, message = std::move(*request)]() mutable {
    feed(coordinator::Received{connection, key, std::move(message)});
  });
}

void CoordinatorHost::closed(const ConnectionId& connection) {
  world_.trace.line([&] {
    const auto peer = peers_.find(connection);
    const bool is_control = peer != peers_.end() && !peer->second.enrol;
    return is_control ? world_.name_of_key(peer->second.key) + "'s connection is closed"
                      : std::string();
  });
  world_.tell([&](Watcher& watcher) { watcher.coordinator_loses(connection); });
  inbox_.deliver([this, connection] { feed(coordinator::Closed{connection}); });
}

void CoordinatorHost::send(coordinator::Send message) {
  const auto peer = peers_.find(message.connection);
  if (peer == peers_.end())
    return world_.violated("wire", "the coordinator answers a connection that never spoke");
  if (message.endpoint == Endpoint::kEnrol) {
    const auto& reply = std::get<pb::EnrolReply>(message.message);
    world_.tell([&](Watcher& watcher) {
      watcher.coordinator_sends(peer->second.key, peer->second.enrol.value_or(pb::EnrolRequest()),
                                reply, durable_);
    });
    world_.trace.line([&] {
      const std::string name = peer->second.enrol ? peer->second.enrol->name() : "a stranger";
      return text("coordinator → ", name, ": ",
                  reply.has_error()
                      ? "Error " + reply.error().code() + ": " + reply.error().message()
                      : "Certificate");
    });
    return world_.network.send_to_client(message.connection, reply.SerializeAsString());
  }
  const auto& reply = std::get<pb::ControlReply>(message.message);
  world_.tell(
      [&](Watcher& watcher) { watcher.coordinator_sends(peer->second.key, reply, durable_); });
  const std::string bytes = reply.SerializeAsString();
  if (bytes.size() > protocol::kControlMessageBytes)
    world_.violated("S15", "a reply over the size limit");
  world_.trace.line([&] {
    const std::string what = describe(reply, world_.trace);
    return what.empty() ? what
                        : text("coordinator → ", world_.name_of_key(peer->second.key), ": ", what);
  });
  world_.network.send_to_client(message.connection, bytes);
}

// ---- Objects ----

bool CoordinatorHost::may_serve(const NodeId& node, const Hash& manifest) const {
  if (!is_up() || is_paused()) return false;
  if (gossip_ && gossip_->serves(manifest)) return true;
  return objects_.contains(manifest) && core_->may_read(node, manifest);
}

coordinator::ObjectStored CoordinatorHost::stored_event(const Hash& manifest) const {
  const Object& object = world_.library.at(manifest);
  coordinator::ObjectStored event{
      manifest, object.manifest_bytes, object.bytes, object.checkpoint, {}};
  event.facts = object.facts;
  return event;
}

void CoordinatorHost::fetch(const coordinator::Fetch& order) {
  if (objects_.contains(order.manifest)) {
    world_.timeline.after(milliseconds(1), [this, life = life_, manifest = order.manifest] {
      if (life == life_)
        inbox_.deliver([this, manifest] {
          if (objects_.contains(manifest)) feed(stored_event(manifest));
        });
    });
    return;
  }
  if (transfers_.contains(order.manifest)) return;  // goes on where it is
  const std::uint64_t transfer = transfers_[order.manifest] = ++next_transfer_;
  const auto reached = [this, order] {
    const auto source = world_.sources.find(order.from);
    const bool is_cut =
        source == world_.sources.end() || !world_.network.can_reach(source->second.first);
    return is_cut ? BlobSource::Answer::kSilent : source->second.second->asked_for(order.manifest);
  };
  const auto known = world_.sources.find(order.from);
  const bool flipped = known != world_.sources.end() && dice_.chance(known->second.second->flips());
  if (flipped && planted("hash_not_checked")) broken_.insert(order.manifest);
  const bool fails = reached() != BlobSource::Answer::kHas || dice_.chance(world_.transfers_fail) ||
                     (flipped && !planted("hash_not_checked"));
  const Duration takes = fails ? kSourceTimeout : world_.transfer_time(order.bytes);
  world_.timeline.after(takes, [this, life = life_, transfer, order, fails, reached] {
    const auto open = transfers_.find(order.manifest);
    if (life != life_ || open == transfers_.end() || open->second != transfer) return;
    const BlobSource::Answer answer = reached();
    if (!fails && answer == BlobSource::Answer::kHas) {
      return fetched(order.manifest, order.purpose == coordinator::Purpose::kCheckpoint);
    }
    transfers_.erase(open);
    if (answer == BlobSource::Answer::kMissing)
      world_.sources.at(order.from).second->found_missing(order.manifest);
    const coordinator::ObjectFailed event{order.manifest,
                                          "its source has not got it or does not answer", true};
    inbox_.deliver([this, event] { feed(event); });
  });
}

void CoordinatorHost::fetched(const Hash& manifest, bool checkpoint) {
  if (planted("manifest_first") && !objects_.contains(manifest)) {
    objects_[manifest] = checkpoint;
    broken_.insert(manifest);
  }
  inbox_.deliver([this, manifest] {
    feed(coordinator::ObjectProgress{manifest, world_.library.at(manifest).bytes});
  });
  world_.timeline.after(dice_.duration(disk_.object_min, disk_.object_max), [this, life = life_,
                                                                             manifest, checkpoint] {
    if (life != life_ || transfers_.erase(manifest) == 0) return;
    if (std::exchange(disk_.file_fails, false)) {
      world_.trace.line([&] { return std::string("coordinator cannot write a file and ends"); });
      return kill();
    }
    objects_[manifest] = checkpoint;
    lost_.erase(manifest);
    if (planted("manifest_first")) broken_.erase(manifest);
    world_.trace.add("coordinator", "stored", manifest.raw());
    world_.trace.line(
        [&] { return text("coordinator has stored ", world_.trace.object(manifest.raw())); });
    inbox_.deliver([this, manifest] { feed(stored_event(manifest)); });
  });
}

}  // namespace skerry::simulation
