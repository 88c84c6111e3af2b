// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/real_daemon.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/enrol.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {

constexpr Duration kEnrolAgain = seconds(2);

}  // namespace

RealDaemon::RealDaemon(RealGround& ground, const protocol::JoinToken& token, Settings settings)
    : ground_(ground),
      token_(token),
      settings_(std::move(settings)),
      dice_(ground.world.seed, settings_.name),
      clock_(ground.network),
      identity_(real_identity(ground.world.seed, settings_.name)) {}

RealDaemon::~RealDaemon() {
  if (worker_) worker_->drop();
  host_.reset();
}

void RealDaemon::start() {
  SKERRY_CHECK(!is_up(), "it runs already");
  ++life_;
  ground_.tell(settings_.name + " starts");
  transport_ = ground_.network.make_client(identity_, token_.coordinator_key);
  paused_until_ = {};
  if (is_enrolled_) return launch();
  transport_->dial(protocol::Endpoint::kEnrol);
  enrol_again_ = ground_.now() + kEnrolAgain;
}

void RealDaemon::launch() {
  auto objects = storage::ObjectStore::open(disk_.store, "/objects", storage::Checkpoints::kAsFiles,
                                            disk_.files);
  if (!objects) {
    // A disk that fails at the start: the person, or systemd, starts it again.
    ground_.tell(text(settings_.name, " cannot read its disk: ", objects.error().message));
    if (!disk_.store.failed() && objects.error().code != ErrorCode::kIo)
      ground_.violated("S16", settings_.name + " refuses its own disk: " + objects.error().message);
    return ended();
  }
  objects_ = std::move(*objects);
  engines_ = std::make_unique<RealEngines>(
      ground_, settings_.name,
      Dice(ground_.world.seed, settings_.name, static_cast<std::uint32_t>(life_)));
  worker_ = std::make_unique<RealWorker>();
  daemon::HostOptions options;
  options.software = "skerryd";
  options.host_label = settings_.name;
  options.incarnation = dice_.u64() | 1;
  for (std::uint32_t index = 0; index < settings_.slots; ++index) {
    pb::Slot& slot = options.slots.emplace_back().description;
    slot.set_index(index);
    slot.set_device("cpu");
    slot.set_memory_bytes(1 << 30);
  }
  writes_.clear();
  exited_.clear();
  persisted_ = 0;
  daemon::HostParts parts{
      .clock = clock_,
      .transport = *transport_,
      .store = disk_.store,
      .objects = *objects_,
      .engines = *engines_,
      .disk = worker_->worker(),
      .peers = nullptr,
      .stepped = [this](const daemon::Event& event, const daemon::Effects& effects) {
        look(event, effects);
      }};
  auto made = daemon::Host::make(std::move(parts), std::move(options));
  if (!made) {
    ground_.violated("S16", settings_.name + " refuses its own state: " + made.error().message);
    return ended();
  }
  host_ = std::move(*made);
  host_->start();
  next_turn_ = ground_.now();
}

void RealDaemon::on_enrol(const protocol::ClientEvent& event) {
  const auto ask = [this] {
    const pb::EnrolRequest request =
        protocol::build_enrol_request(identity_, token_, settings_.name, 1);
    [[maybe_unused]] const Result<void> sent =
        transport_->send(protocol::Endpoint::kEnrol, request.SerializeAsString());
  };
  if (std::holds_alternative<protocol::Opened>(event)) ask();
  const auto* received = std::get_if<protocol::Received>(&event);
  if (received == nullptr) return;
  const auto reply = protocol::parse_enrol_reply(received->bytes);
  if (!reply || reply->has_error()) return;
  const auto enrolled =
      protocol::check_enrol_reply(*reply, identity_, token_, clock_.now().unix_ms);
  if (!enrolled) return;
  is_enrolled_ = true;
}

void RealDaemon::kill(bool machine) {
  if (!is_up()) return;
  ground_.tell(text(settings_.name, machine ? " vanishes with its machine" : " is killed"));
  if (worker_) worker_->drop();
  ended();
  if (machine) disk_.process_ended(dice_.u64(), true);
}

// The process is gone, whoever ended it.
void RealDaemon::ended() {
  if (worker_) worker_->drop();
  host_.reset();
  worker_.reset();
  engines_.reset();
  objects_.reset();
  transport_.reset();
  disk_.process_ended(dice_.u64(), false);
}

void RealDaemon::pause(Duration length) {
  if (is_up()) paused_until_ = ground_.now() + length;
}

void RealDaemon::drain() {
  if (!host_) return;
  ground_.tell(settings_.name + " is told to drain");
  host_->on_drain();
  next_turn_ = ground_.now();
}

Duration RealDaemon::next() const {
  if (!is_up()) return Duration::max();
  if (ground_.now() < paused_until_) return paused_until_;
  if (!host_) return enrol_again_;
  return std::min(next_turn_, worker_->next());
}

void RealDaemon::advance() {
  const Duration now = ground_.now();
  if (!is_up() || now < paused_until_) return;
  if (!host_) {
    [[maybe_unused]] const auto ready =
        transport_->poll({}, {}, [this](const protocol::ClientEvent& event) { on_enrol(event); });
    if (!is_enrolled_ && now >= enrol_again_) {
      transport_->hang_up(protocol::Endpoint::kEnrol);
      transport_->dial(protocol::Endpoint::kEnrol);
      enrol_again_ = now + kEnrolAgain;
    }
    if (!is_enrolled_) return;
    transport_->hang_up(protocol::Endpoint::kEnrol);
    launch();
    if (!host_) return;
  }
  bool is_due = now >= next_turn_ || engines_->has_events();
  [[maybe_unused]] const auto ready = transport_->poll({}, {}, [&](protocol::ClientEvent event) {
    is_due = true;
    host_->on_transport(std::move(event));
  });
  if (worker_->next() <= now) {
    is_due = true;
    if (const Done done = worker_->finish_job()) done();
  }
  if (is_due) {
    host_->turn();
    next_turn_ = host_->next_turn() - RealClock::kBooted;
  }
  worker_->plan(now, dice_, disk_.slowest);
  if (!host_->exit_code()) {
    if (disk_.is_outlived(now))
      ground_.violated("S7", settings_.name + " goes on although its disk has failed");
    return;
  }
  ground_.tell(text(settings_.name, " ends with exit code ", *host_->exit_code()));
  ended();
}

void RealDaemon::look(const daemon::Event& event, const daemon::Effects& effects) {
  for (const daemon::Write& write : effects.writes) writes_[write.ticket] = write.state;
  if (const auto* persisted = std::get_if<daemon::Persisted>(&event)) {
    if (persisted->ticket < persisted_)
      ground_.violated("once", text(settings_.name, " hears that its state ", persisted->ticket,
                                    " is durable after a newer one"));
    persisted_ = persisted->ticket;
    const auto kept = disk_.kept.get(daemon::kHostStateKey);
    const bool is_there = kept && *kept &&
                          std::any_of(writes_.lower_bound(persisted_), writes_.end(),
                                      [&](const auto& each) { return each.second == **kept; });
    if (!is_there)
      ground_.violated("S7", text(settings_.name, " hears that its state ", persisted_,
                                  " is durable; it is not"));
  } else if (const auto* exited = std::get_if<daemon::EngineExited>(&event)) {
    if (!exited_.insert(exited->engine).second)
      ground_.violated("once",
                       text(settings_.name, " hears twice of the end of engine ", exited->engine));
  } else if (const auto* stored = std::get_if<daemon::ObjectStored>(&event)) {
    if (!objects_->has(stored->manifest))
      ground_.violated("S6", text(settings_.name, " hears that an object is stored which is not"));
  } else if (const auto* snapshot = std::get_if<daemon::SnapshotStored>(&event)) {
    ++stored_;
    const Hash name = *Hash::from_raw(snapshot->object.manifest());
    const std::string wrong =
        objects_->has(name) ? wrong_weights(*objects_, name) : "it is not stored";
    // A read that brings wrong bytes is refused as one: it says nothing of the
    // disk.
    if (!wrong.empty() && wrong.find("damaged") == std::string::npos)
      ground_.violated("weights", text(settings_.name, " has stored a snapshot: ", wrong));
  } else if (const auto* reply = std::get_if<daemon::Reply>(&event)) {
    const pb::CommitReply& commit = reply->reply.commit();
    if (!reply->reply.has_commit() || commit.status() != pb::COMMIT_ACCEPTED) return;
    Acknowledged& newest = acknowledged_[{RunId(commit.run()), commit.expert()}];
    if (commit.head_step() > newest.step)
      newest = {*Hash::from_raw(commit.head().manifest()), commit.head_step()};
  }
}

}  // namespace skerry::simulation
