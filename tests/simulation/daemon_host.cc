// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/daemon_host.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/validate.h"
#include "tests/planted/planted.h"
#include "tests/simulation/describe.h"
#include "tests/simulation/gossip_side.h"

namespace skerry::simulation {
namespace {

constexpr std::uint64_t kCheckpointBytes = 4 << 20;
constexpr Duration kFetchTimeout = seconds(1);
constexpr Duration kLookEvery = seconds(1);
constexpr unsigned kLooksPerKeeping = 30;  // of gossip's records

}  // namespace

DaemonHost::DaemonHost(World& world, const CoordinatorHost& coordinator, Settings settings)
    : world_(world),
      coordinator_(coordinator),
      settings_(std::move(settings)),
      dice_(world.seed, settings_.name),
      events_([this](const daemon::Event& event) { step(event); }) {
  new_identity();
  world_.believers.push_back(this);
}

DaemonHost::~DaemonHost() = default;

bool DaemonHost::believes(const ExpertId& expert, Epoch epoch, std::uint64_t incarnation) const {
  if (!core_ || incarnation != incarnation_) return false;
  const std::vector<daemon::SlotView> slots = core_->slots();
  return std::ranges::any_of(slots, [&](const daemon::SlotView& slot) {
    return slot.has_lease && slot.expert == expert && slot.epoch == epoch &&
           now().boot < slot.lease_until;
  });
}

void DaemonHost::new_identity() {
  identity_ = identity_of(text(settings_.name, "'s disk ", ++disks_));
  world_.trace.name_node(identity_.id, settings_.name);
  world_.sources[identity_.id] = {settings_.name, this};
  world_.key_names[identity_.x25519_key] = settings_.name;
  if (world_.gossip != nullptr) world_.gossip->keys[identity_.id] = identity_.x25519_key;
}

Now DaemonHost::now() const {
  const Duration time = world_.timeline.now();
  const auto drifted =
      static_cast<std::int64_t>(static_cast<double>(time.count()) * (1 + settings_.drift));
  return {seconds(500) + Duration(drifted), kEpochStart + time / milliseconds(1) + wall_offset_ms_};
}

Duration DaemonHost::until(Duration boot) const {
  const Duration wait = std::max(boot - now().boot, Duration{});
  // A little more than needed, so that rounding does not wake the core too
  // early again and again.
  return Duration(
             static_cast<std::int64_t>(static_cast<double>(wait.count()) / (1 + settings_.drift))) +
         Duration(1000);
}

// ---- Life ----

void DaemonHost::start(const pb::TokenCreated& token) {
  SKERRY_CHECK(!is_up(), "it runs already");
  life_up_ = true;
  ++life_;
  token_ = token;
  world_.trace.add(settings_.name, "start");
  world_.trace.line([&] { return text(settings_.name, " starts"); });
  if (enrolled_) {
    run_core();
  } else {
    world_.network.dial(settings_.name, Endpoint::kEnrol, identity_.x25519_key, *this);
  }
}

void DaemonHost::run_core() {
  daemon::CoreConfig config;
  config.incarnation = incarnation_ = dice_.u64() | 1;
  world_.sources[identity_.id] = {settings_.name, this};
  config.software = "skerryd";
  config.host_label = settings_.host;
  config.drain_limit = settings_.drain_limit;
  for (std::uint32_t index = 0; index < settings_.slots; ++index) {
    pb::Slot& slot = config.slots.emplace_back();
    slot.set_index(index);
    slot.set_device("cpu");
    slot.set_memory_bytes(1 << 30);
  }
  if (state_damaged_) {
    world_.trace.line(
        [&] { return text(settings_.name, " finds its saved state damaged and ends"); });
    failed_ = true;
    return end_process(Death::kKilled);
  }
  daemon::Recovered found{state_, objects_};
  for (const auto& [manifest, kind] : objects_) {
    if (const auto facts = facts_of(manifest)) found.checkpoints[manifest] = *facts;
  }
  for (const auto& [manifest, kind] : partial_) {
    found.objects[manifest] = kind;
    found.partial.insert(manifest);
  }
  auto made = daemon::Core::make(config, std::move(found));
  if (!made) {
    world_.violated("S16", settings_.name + " refuses its own state: " + made.error().message);
    return;
  }
  core_ = std::make_unique<daemon::Core>(std::move(*made));
  if (world_.gossip != nullptr) start_gossip(config);
  feed(daemon::Tick{});
  world_.network.dial(settings_.name, Endpoint::kControl, identity_.x25519_key, *this);
}

void DaemonHost::start_gossip(const daemon::CoreConfig& config) {
  GossipProcess process{
      settings_.name, [this] { return now(); },
      [this](std::function<void()> action) { inbox_.deliver(std::move(action)); }};
  gossip_ = std::make_unique<DaemonGossip>(
      world_, *world_.gossip, std::move(process),
      DaemonGossip::Settings{
          .identity = identity_,
          .certificate = certificate_,
          .host = settings_.host,
          .slots = config.slots,
          .listens = settings_.listens,
          .seed = Dice(world_.seed, settings_.name + "'s gossip", static_cast<std::uint32_t>(life_))
                      .u64(),
          .saved = records_});
  kept_incarnation_ = 0;
  if (settings_.original != nullptr) world_.gossip->rules.key_is_shared(identity_.id);
  look_around(0);
}

void DaemonHost::look_around(unsigned looks) {
  world_.timeline.after(kLookEvery, [this, life = life_, looks] {
    if (life != life_) return;
    inbox_.deliver([this, looks] {
      for (daemon::Event& event : gossip_->look(*core_, objects_)) feed(std::move(event));
      keep_records(looks % kLooksPerKeeping == kLooksPerKeeping - 1);
    });
    look_around(looks + 1);
  });
}

void DaemonHost::keep_records(bool is_due) {
  if (!is_due && gossip_->incarnation() == kept_incarnation_) return;
  kept_incarnation_ = gossip_->incarnation();
  if (!disk_.full) records_ = gossip_->save();
}

void DaemonHost::end_process(Death death) {
  if (DaemonHost* original = settings_.original; original != nullptr && original->id() == id())
    world_.sources[id()] = {original->name(), original};
  life_up_ = false;
  ++life_;
  if (gossip_ && death == Death::kVanished) gossip_->vanishes();
  gossip_.reset();
  core_.reset();
  engines_.clear();
  ended_engines_.clear();
  memories_.clear();
  transfers_.clear();
  for (const auto& [manifest, kind] : std::exchange(receiving_, {})) partial_[manifest] = kind;
  inbox_.clear();
  events_.clear();
  last_commit_.reset();
  at_commit_ = {};
  // Writes reach the disk in order, as far as it had come.
  for (std::uint64_t kept = dice_.between(0, writes_.size()); kept > 0; --kept) {
    if (!disk_.is_full_of_state) save(writes_.front());
    writes_.pop_front();
  }
  writes_.clear();
  state_writes_ = {};
  saved_ticket_ = 0;
  writing_ = false;
  world_.network.hang_up(settings_.name, death == Death::kVanished);
  world_.tell([&](Watcher& watcher) { watcher.daemon_stopped(settings_.name); });
}

void DaemonHost::kill(Death death) {
  if (!is_up()) return;
  world_.trace.add(settings_.name, "killed");
  world_.trace.line([&] {
    return text(settings_.name,
                death == Death::kKilled ? " is killed" : " vanishes with its machine");
  });
  end_process(death);
}

void DaemonHost::wipe_disk() {
  SKERRY_CHECK(!is_up(), "it runs already");
  world_.trace.line([&] { return text(settings_.name, "'s disk is lost"); });
  enrolled_ = false;
  certificate_.Clear();
  records_.clear();
  state_.clear();
  objects_.clear();
  partial_.clear();
  damaged_.clear();
  state_damaged_ = false;
  new_identity();
}

void DaemonHost::damage_state() {
  SKERRY_CHECK(!is_up(), "it runs already");
  state_damaged_ = !state_.empty();
}

void DaemonHost::copy_disk(const DaemonHost& other) {
  SKERRY_CHECK(!is_up(), "it runs already");
  identity_ = other.identity_;
  enrolled_ = other.enrolled_;
  certificate_ = other.certificate_;
  records_ = other.records_;
  state_ = other.state_;
  objects_ = other.objects_;
  partial_ = other.partial_;
  damaged_ = other.damaged_;
}

void DaemonHost::pause(Duration length) {
  if (!is_up() || is_paused()) return;
  inbox_.close();
  world_.trace.line(
      [&] { return text(settings_.name, " is stopped for ", seconds_text(length), " s"); });
  world_.timeline.after(length, [this, life = life_] {
    if (life != life_) return;
    inbox_.open();
    world_.trace.line([&] { return text(settings_.name, " goes on"); });
    inbox_.catch_up([&] { return life == life_; });
    if (life == life_ && core_) feed(daemon::Tick{});
  });
}

void DaemonHost::drain() {
  world_.trace.line([&] { return text(settings_.name, " is told to drain"); });
  for (const daemon::SlotView& slot : core_ ? core_->slots() : std::vector<daemon::SlotView>{}) {
    const auto running = engines_.find(slot.slot);
    if (is_paused() || running == engines_.end() || !running->second->is_training()) continue;
    world_.tell([&](Watcher& watcher) {
      watcher.daemon_drains(settings_.name, slot, running->second->training().step);
    });
  }
  inbox_.deliver([this] { feed(daemon::DrainRequested{}); });
}

// ---- Core ----

void DaemonHost::step(const daemon::Event& event) {
  if (!core_) return;
  daemon::Effects effects;
  try {
    effects = core_->step(event, now());
  } catch (const std::exception& thrown) {
    world_.violated("S18", text(settings_.name, "'s core throws: ", thrown.what()));
    return kill(Death::kKilled);
  }
  const std::vector<daemon::SlotView> slots = core_->slots();
  const Watcher::DaemonStep step{
      settings_.name, identity_.id, settings_.host,
      incarnation_,   *core_,       slots,
      event,          effects,      [this](const Hash& manifest) { return has_stored(manifest); }};
  world_.tell([&](Watcher& watcher) { watcher.daemon_stepped(step); });
  perform(effects, *this);
}

void DaemonHost::log(const daemon::LogEntry& entry) {
  if (entry.level < LogLevel::kWarning) return;
  world_.trace.line(
      [&] { return text("  ", settings_.name, " notes: ", world_.trace.readable(entry.message)); });
}

void DaemonHost::send(const pb::ControlRequest& request) {
  if (request.has_commit()) {
    last_commit_ = request.commit();
    if (const auto action = std::exchange(at_commit_, {})) action(*last_commit_);
  }
  world_.network.send_to_server(settings_.name, Endpoint::kControl, request.SerializeAsString());
}

void DaemonHost::cancel(const Hash& object) {
  transfers_.erase(object);
  if (const auto cut = receiving_.extract(object)) partial_[object] = cut.mapped();
}

void DaemonHost::plan(const daemon::PlanRound& order) {
  if (FakeEngine* running = engine(order.slot, order.engine)) running->set_plan(order.plan);
}

void DaemonHost::drop(const daemon::DropObject& order) {
  world_.trace.add(settings_.name, "drops", order.manifest.raw());
  objects_.erase(order.manifest);
  partial_.erase(order.manifest);
  damaged_.erase(order.manifest);
}

void DaemonHost::collect_log(std::uint64_t request) {
  world_.timeline.after(milliseconds(1), [this, life = life_, request] {
    if (life == life_)
      inbox_.deliver([this, request] { feed(daemon::LogCollected{request, {"a line"}}); });
  });
}

void DaemonHost::wake_at(std::optional<Duration> boot) {
  const std::uint64_t wake = ++wake_;
  if (!boot) return;
  world_.timeline.after(until(*boot), [this, life = life_, wake] {
    if (life == life_ && wake == wake_) inbox_.deliver([this] { feed(daemon::Tick{}); });
  });
}

void DaemonHost::exit(int code) {
  world_.trace.line([&] { return text(settings_.name, " ends with exit code ", code); });
  failed_ = code != 0;
  world_.timeline.after({}, [this, life = life_] {
    if (life == life_) end_process(Death::kKilled);
  });
}

// ---- Disk ----

void DaemonHost::write(const daemon::Write& write) {
  world_.trace.add(settings_.name, "state", write.state);
  start_write(write);
}

void DaemonHost::start_write(const daemon::Write& write) {
  state_writes_.started(write);
  writes_.push_back(write);
  write_next();
}

void DaemonHost::write_next() {
  if (writing_ || writes_.empty()) return;
  writing_ = true;
  world_.timeline.after(dice_.duration(disk_.write_min, disk_.write_max), [this, life = life_] {
    if (life != life_) return;
    writing_ = false;
    if (std::exchange(disk_.sync_fails, false)) {
      world_.trace.line([&] { return text(settings_.name, " cannot sync its disk and ends"); });
      return end_process(Death::kKilled);
    }
    const daemon::Write write = std::move(writes_.front());
    writes_.pop_front();
    const bool refused = disk_.is_full_of_state;
    if (!refused) save(write);
    write_next();
    inbox_.deliver([this, refused, write] {
      if (refused) return wait_for_room();
      state_writes_.saved(write);
      feed(daemon::Persisted{write.ticket});
    });
  });
}

// What the core was told to be durable stays the least that a restart finds.
void DaemonHost::save(const daemon::Write& write) {
  if (write.ticket < saved_ticket_) {
    world_.violated("S7", text(settings_.name, " writes its state ", write.ticket,
                               " over the newer ", saved_ticket_));
  }
  saved_ticket_ = write.ticket;
  state_ = write.state;
}

void DaemonHost::wait_for_room() {
  state_writes_.refused(now().boot);
  world_.timeline.after(until(now().boot + daemon::StateWrites::kRetry), [this, life = life_] {
    if (life != life_) return;
    inbox_.deliver([this] {
      if (std::optional<daemon::Write> due = state_writes_.due(now().boot)) start_write(*due);
    });
  });
}

// ---- Network ----

void DaemonHost::forge(const pb::ControlRequest& request) {
  world_.network.send_to_server(settings_.name, Endpoint::kControl, request.SerializeAsString());
}

// By the certificate that it has, or by a token.
void DaemonHost::enrol() {
  const pb::EnrolRequest request =
      enrolled_ ? readmission_request(identity_, settings_.name, certificate_)
                : enrol_request(identity_, settings_.name, token_);
  world_.network.send_to_server(settings_.name, Endpoint::kEnrol, request.SerializeAsString());
  world_.timeline.after(seconds(2), [this, life = life_] {
    if (life == life_ && !enrolled_) enrol();
  });
}

void DaemonHost::opened(Endpoint endpoint) {
  if (endpoint == Endpoint::kEnrol) return enrol();
  inbox_.deliver([this] { feed(daemon::ConnectionOpened{}); });
}

void DaemonHost::lost(Endpoint endpoint) {
  if (endpoint == Endpoint::kControl)
    inbox_.deliver([this] { feed(daemon::ConnectionClosed{"connection reset"}); });
}

// A coordinator that was restored may not know a key that enrolled since.
void DaemonHost::refused(Endpoint endpoint) {
  if (endpoint != Endpoint::kControl || !enrolled_) return;
  world_.network.hang_up(settings_.name, Endpoint::kEnrol);
  world_.network.dial(settings_.name, Endpoint::kEnrol, identity_.x25519_key, *this);
}

void DaemonHost::received(Endpoint endpoint, const std::string& bytes) {
  if (endpoint == Endpoint::kEnrol) {
    auto reply = protocol::parse_enrol_reply(bytes);
    if (!reply)
      return world_.violated("wire", "the coordinator answers an enrolment by what nobody reads: " +
                                         reply.error().message);
    if (enrolled_) return world_.network.hang_up(settings_.name, Endpoint::kEnrol);
    if (!reply->has_certificate()) return;
    enrolled_ = true;
    certificate_ = reply->certificate();
    world_.network.hang_up(settings_.name, Endpoint::kEnrol);
    if (!core_) run_core();
    return;
  }
  auto reply = protocol::parse_control_reply(bytes);
  if (!reply)
    return world_.violated("wire",
                           "the coordinator says what no daemon reads: " + reply.error().message);
  inbox_.deliver(
      [this, message = std::move(*reply)]() mutable { feed(daemon::Reply{std::move(message)}); });
}

// ---- Objects ----

BlobSource::Answer DaemonHost::asked_for(const Hash& manifest) const {
  if (!is_up() || is_paused()) return Answer::kSilent;
  return has_stored(manifest) && !damaged_.contains(manifest) ? Answer::kHas : Answer::kMissing;
}

// Serving reads what it serves, and so finds out what the disk has lost.
void DaemonHost::found_missing(const Hash& manifest) {
  if (!is_up()) return;
  world_.trace.line([&] {
    return text(settings_.name, " finds ", world_.trace.object(manifest.raw()), " damaged");
  });
  objects_.erase(manifest);
  damaged_.erase(manifest);
  const Error error = fail(ErrorCode::kCorrupt, "a chunk is damaged");
  inbox_.deliver([this, manifest, error] { feed(daemon::ObjectFailed{manifest, error}); });
}

bool DaemonHost::lose_object() {
  for (const auto& [manifest, kind] : objects_) {
    if (kind == daemon::ObjectKind::kCheckpoint && damaged_.insert(manifest).second) return true;
  }
  return false;
}

bool DaemonHost::lose_object(const Hash& manifest) {
  if (!objects_.contains(manifest)) return false;
  world_.trace.line([&] {
    return text(settings_.name, "'s disk damages ", world_.trace.object(manifest.raw()));
  });
  return damaged_.insert(manifest).second;
}

// The coordinator gives it, or another node that has it.
bool DaemonHost::can_be_had(const Hash& manifest) const {
  if (world_.network.can_reach(settings_.name) && coordinator_.may_serve(identity_.id, manifest))
    return true;
  return !world_.network.is_cut(settings_.name) && has_peer_with(manifest);
}

// One that records name and that is connected; without gossip, anyone.
bool DaemonHost::has_peer_with(const Hash& manifest) const {
  const auto gives = [&](const BlobSource* source) {
    const auto* other = dynamic_cast<const DaemonHost*>(source);
    return other != nullptr && other != this && !world_.network.is_cut(other->name()) &&
           other->asked_for(manifest) == Answer::kHas;
  };
  if (!gossip_) {
    return std::ranges::any_of(world_.sources,
                               [&](const auto& each) { return gives(each.second.second); });
  }
  return std::ranges::any_of(gossip_->seek(manifest), [&](const NodeId& node) {
    const auto source = world_.sources.find(node);
    return source != world_.sources.end() && gives(source->second.second);
  });
}

void DaemonHost::fetch(const daemon::FetchObject& order) {
  const Hash manifest = *Hash::from_raw(order.object.manifest());
  const std::uint64_t transfer = transfers_[manifest] = ++next_transfer_;
  if (order.verify) {
    for (const Hash& damaged : std::set(damaged_)) {
      if (damaged == manifest) objects_.erase(manifest);
    }
    damaged_.erase(manifest);
  }
  const bool here = objects_.contains(manifest);
  const bool flipped = dice_.chance(disk_.flips) || (!here && dice_.chance(coordinator_.flips()));
  if (flipped && planted("hash_not_checked")) damaged_.insert(manifest);
  const bool fails = !here && (!can_be_had(manifest) || dice_.chance(world_.transfers_fail) ||
                               (flipped && !planted("hash_not_checked")));
  if (!here && !fails) receiving_[manifest] = order.kind;
  const std::uint64_t left = order.object.bytes() / (partial_.contains(manifest) ? 2 : 1);
  const Duration takes = here    ? milliseconds(5)
                         : fails ? kFetchTimeout
                                 : world_.transfer_time(left);
  world_.timeline.after(
      takes, [this, life = life_, manifest, transfer, here, fails, kind = order.kind] {
        const auto open = transfers_.find(manifest);
        if (life != life_ || open == transfers_.end() || open->second != transfer) return;
        const bool broken = !here && (fails || !can_be_had(manifest));
        if (broken || disk_.full) {
          transfers_.erase(open);
          if (const auto cut = receiving_.extract(manifest)) partial_[manifest] = cut.mapped();
          const Error error = broken ? fail(ErrorCode::kUnavailable, "nobody who has it answers")
                                     : fail(ErrorCode::kExhausted, "the disk is full");
          return inbox_.deliver([this, manifest, error] {
            feed(daemon::ObjectFailed{manifest, error});
          });
        }
        finish_fetch(manifest, kind);
      });
}

std::optional<daemon::CheckpointFacts> DaemonHost::facts_of(const Hash& manifest) const {
  const Object* const object = world_.library.find(manifest);
  if (object == nullptr || !object->checkpoint) return std::nullopt;
  return daemon::CheckpointFacts{{object->facts.run, object->facts.expert}, object->facts.step};
}

// True: the process has ended by it.
bool DaemonHost::file_fails() {
  if (!std::exchange(disk_.file_fails, false)) return false;
  world_.trace.line([&] { return text(settings_.name, " cannot write or read a file and ends"); });
  end_process(Death::kKilled);
  return true;
}

void DaemonHost::finish_fetch(const Hash& manifest, daemon::ObjectKind kind) {
  const std::uint64_t transfer = transfers_.at(manifest);
  const std::uint64_t bytes = world_.library.at(manifest).bytes;
  if (planted("manifest_first") && !objects_.contains(manifest)) {
    objects_[manifest] = kind;
    damaged_.insert(manifest);
  }
  inbox_.deliver([this, manifest, bytes] { feed(daemon::ObjectProgress{manifest, bytes, bytes}); });
  world_.timeline.after(
      dice_.duration(disk_.object_min, disk_.object_max),
      [this, life = life_, manifest, transfer, kind] {
        const auto open = transfers_.find(manifest);
        if (life != life_ || open == transfers_.end() || open->second != transfer) return;
        if (file_fails()) return;
        transfers_.erase(open);
        receiving_.erase(manifest);
        partial_.erase(manifest);
        if (kind == daemon::ObjectKind::kCheckpoint && !objects_.contains(manifest)) {
          world_.trace.line([&] {
            return text(settings_.name, " has fetched ", world_.trace.object(manifest.raw()));
          });
        }
        objects_[manifest] = kind;
        if (planted("manifest_first")) damaged_.erase(manifest);
        inbox_.deliver([this, manifest] {
          feed(daemon::ObjectStored{manifest, {}, facts_of(manifest)});
        });
      });
}

void DaemonHost::store(const daemon::StoreSnapshot& order) {
  const std::pair place(order.slot, order.engine);
  if (const FakeEngine* running = engine(order.slot, order.engine))
    memories_[place] = running->snapshot();
  const auto memory = memories_.find(place);
  SKERRY_CHECK(memory != memories_.end(), "a snapshot is stored that nobody took");
  world_.timeline.after(dice_.duration(disk_.object_min, disk_.object_max),
                        [this, life = life_, order, training = memory->second] {
                          if (life == life_) keep_snapshot(order, training);
                        });
}

void DaemonHost::keep_snapshot(const daemon::StoreSnapshot& order, const Training& training) {
  if (file_fails()) return;
  if (disk_.full) {
    const Error error = fail(ErrorCode::kExhausted, "the disk is full");
    return inbox_.deliver([this, order, error] {
      feed(daemon::SnapshotFailed{order.slot, order.engine, error});
    });
  }
  coordinator::ObjectFacts facts;
  facts.run = RunId(order.run);
  facts.expert = order.expert;
  facts.epoch = Epoch(order.epoch);
  facts.attempt = order.attempt;
  facts.step = order.step;
  if (!order.parent.empty()) facts.parent = *Hash::from_raw(order.parent);
  facts.fingerprint = order.fingerprint;
  if (training.step != order.step || training.expert != order.expert ||
      training.attempt != order.attempt) {
    world_.violated("weights", text(settings_.name, " stores a snapshot of step ", training.step,
                                    " as step ", order.step));
  }
  const Object& object = world_.library.add_checkpoint(facts, training.weights, kCheckpointBytes);
  world_.trace.name_object(object.name, text(expert_text(order.run, order.expert, world_.trace),
                                             "@", order.step, "e", Epoch(order.epoch).counter()));
  objects_[object.name] = daemon::ObjectKind::kCheckpoint;
  ++snapshots_stored_;
  world_.trace.add(settings_.name, "stored", object.name.raw());
  world_.trace.line(
      [&] { return text(settings_.name, " has stored ", world_.trace.object(object.name.raw())); });
  memories_.erase({order.slot, order.engine});
  if (FakeEngine* running = engine(order.slot, order.engine)) running->snapshot_done();
  inbox_.deliver([this, order, ref = object.ref()] {
    feed(daemon::SnapshotStored{order.slot, order.engine, ref});
  });
}

// ---- Engines ----

FakeEngine* DaemonHost::engine(std::uint32_t slot, std::uint64_t number) {
  const auto found = engines_.find(slot);
  if (found == engines_.end() || found->second->number() != number) return nullptr;
  return found->second.get();
}

void DaemonHost::start(const daemon::StartEngine& order) {
  const auto exits = [&](const std::string& how, std::optional<Error> error) {
    world_.timeline.after(milliseconds(1), [this, life = life_, order, how, error] {
      if (life != life_) return;
      inbox_.deliver([this, order, how, error] {
        feed(daemon::EngineExited{order.slot, order.engine, how, {}, false, error});
      });
    });
  };
  for (const auto& shard : order.shards) {
    if (!objects_.contains(*Hash::from_raw(shard.manifest()))) {
      world_.violated("S4",
                      settings_.name + " starts an engine on a shard that is not on its disk");
    }
  }
  Training from{.seed = order.start.train().seed(),
                .expert = order.start.expert(),
                .attempt = order.start.attempt(),
                .step = 0,
                .weights = {}};
  if (!order.resume.manifest().empty()) {
    const Hash manifest = *Hash::from_raw(order.resume.manifest());
    if (!objects_.contains(manifest)) {
      world_.violated("S4",
                      settings_.name + " starts an engine on a checkpoint that is not on its disk");
      return;
    }
    if (damaged_.contains(manifest) || dice_.chance(disk_.flips))
      return exits("never started", fail(ErrorCode::kCorrupt, "a chunk is damaged"));
    const Object& object = world_.library.at(manifest);
    from.step = object.facts.step;
    from.weights = object.weights;
    if (planted("resumes_older_training") && object.facts.parent)
      from.weights = world_.library.at(*object.facts.parent).weights;
    if (object.facts.expert != from.expert) {
      world_.violated("weights", settings_.name + " resumes an expert from another's checkpoint");
    }
  }
  if (engines_.contains(order.slot) && !engines_.at(order.slot)->has_ended()) {
    world_.violated("engine", settings_.name + " starts a second engine in a slot");
  }
  ++engine_starts_;
  world_.trace.add(settings_.name, "engine", order.resume.manifest());
  world_.trace.line([&] {
    return text(settings_.name, " starts an engine at ",
                order.resume.manifest().empty() ? "the start"
                                                : world_.trace.object(order.resume.manifest()));
  });
  if (const auto old = engines_.find(order.slot); old != engines_.end()) {
    ended_engines_.push_back(std::move(old->second));
    engines_.erase(old);
  }
  sweep_engines();
  FakeEngine::Settings settings;
  settings.slot = order.slot;
  settings.engine = order.engine;
  settings.target = order.start.train().steps();
  settings.plan = order.start.plan();
  settings.step_time = settings_.step_time;
  settings.start_time = dice_.duration(milliseconds(300), milliseconds(900));
  settings.fingerprint = "simulated engine";
  engines_[order.slot] = std::make_unique<FakeEngine>(
      world_, settings, from, [this, life = life_](daemon::Event event) {
        // Through the channel: never within the call that caused it.
        world_.timeline.after({}, [this, life, event = std::move(event)]() mutable {
          if (life == life_)
            inbox_.deliver([this, event = std::move(event)]() mutable { feed(std::move(event)); });
        });
      });
}

void DaemonHost::stop(const daemon::StopEngine& order) {
  FakeEngine* running = engine(order.slot, order.engine);
  if (running == nullptr) return;
  switch (order.kind) {
    case daemon::StopKind::kSnapshotNow:
      return running->snapshot_now();
    case daemon::StopKind::kFinishRound:
      return running->finish_round();
    case daemon::StopKind::kKill:
      // A snapshot that is on its way outlives its engine: the memory is the
      // daemon's too.
      world_.timeline.after(milliseconds(2), [this, life = life_, order] {
        if (life != life_) return;
        if (FakeEngine* doomed = engine(order.slot, order.engine)) doomed->die("signal 9", false);
      });
      return;
  }
}

bool DaemonHost::break_engine(bool hangs, bool for_memory) {
  for (auto& [slot, running] : engines_) {
    // One that starts, or takes its first step, is given minutes: not waited
    // for here.
    if (running->has_ended() || (hangs && !running->has_stepped())) continue;
    if (hangs) {
      running->hang();
    } else {
      running->die(kBrokenEngine, for_memory);
    }
    return true;
  }
  return false;
}

void DaemonHost::sweep_engines() { ended_engines_.clear(); }

}  // namespace skerry::simulation
