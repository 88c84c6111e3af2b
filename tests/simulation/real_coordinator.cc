// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/real_coordinator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "storage/testing/testing.h"

namespace skerry::simulation {
namespace {

using storage::value_of;

constexpr char kFolder[] = "/objects";

}  // namespace

RealCoordinator::RealCoordinator(RealGround& ground)
    : ground_(ground),
      dice_(ground.world.seed, "coordinator"),
      clock_(ground.network),
      rng_(Dice(ground.world.seed, "coordinator's random")),
      identity_(real_identity(ground.world.seed, "coordinator")),
      admin_(real_identity(ground.world.seed, "admin")) {}

RealCoordinator::~RealCoordinator() {
  if (!host_) return;
  state_disk_->drop();
  object_disk_->drop();
  host_.reset();
}

pb::ObjectRef RealCoordinator::add_file(const std::string& name, const std::string& bytes) {
  const auto objects = value_of(storage::ObjectStore::open(
      disk_.store, kFolder, storage::Checkpoints::kInStore, disk_.files));
  storage::Manifest manifest;
  manifest.name = name;
  const storage::Chunk chunk{blake2b(bytes), static_cast<std::uint32_t>(bytes.size())};
  manifest.parts.push_back({std::string(storage::kPartFile), {}, {chunk}});
  const storage::NamedManifest named = value_of(storage::encode_manifest(std::move(manifest)));
  (void)value_of(objects->begin(named));
  value_of(objects->put(named.name, chunk.hash, bytes));
  value_of(objects->seal(named.name));
  pb::ObjectRef ref;
  ref.set_manifest(named.name.raw());
  ref.set_manifest_bytes(named.encoded.size());
  ref.set_bytes(bytes.size());
  ref.set_name(name);
  return ref;
}

void RealCoordinator::start() {
  SKERRY_CHECK(!is_up(), "it runs already");
  ground_.tell("coordinator starts");
  transport_ = ground_.network.make_server(identity_);
  auto objects =
      storage::ObjectStore::open(disk_.store, kFolder, storage::Checkpoints::kInStore, disk_.files);
  if (!objects) {
    ground_.tell("coordinator cannot read its disk: " + objects.error().message);
    if (!disk_.store.failed() && objects.error().code != ErrorCode::kIo)
      ground_.violated("S16", "the coordinator refuses its own disk: " + objects.error().message);
    return ended();
  }
  objects_ = std::move(*objects);
  state_disk_ = std::make_unique<RealWorker>();
  object_disk_ = std::make_unique<RealWorker>();
  coordinator::HostOptions options;
  options.first_admin = {admin_.node_id(), admin_.ed25519_key(), admin_.x25519_key(), "admin"};
  auto made = coordinator::Host::make({.transport = *transport_,
                                       .store = disk_.store,
                                       .objects = *objects_,
                                       .identity = identity_,
                                       .clock = clock_,
                                       .rng = rng_,
                                       .state_disk = state_disk_->worker(),
                                       .object_disk = object_disk_->worker(),
                                       .folder = kFolder,
                                       .files = disk_.files},
                                      options);
  if (!made) {
    ground_.tell("coordinator cannot start: " + made.error().message);
    const bool may_fail = disk_.store.failed() || made.error().code == ErrorCode::kExhausted;
    if (!may_fail)
      ground_.violated("S16", "the coordinator refuses its own state: " + made.error().message);
    return ended();
  }
  host_ = std::move(*made);
  if (const auto& first = host_->first_start()) {
    token_.endpoints = transport_->endpoints();
    token_.coordinator_key = identity_.ed25519_key();
    token_.id = TokenId(first->token.info().id());
    token_.secret = first->token.secret();
    token_.role = first->token.info().role();
    token_.expires_unix_ms = first->token.info().expires_unix_ms();
  }
  paused_until_ = {};
  host_->begin();
  wake_ = ground_.now() + host_->wait();
}

void RealCoordinator::kill(bool machine) {
  if (!is_up()) return;
  ground_.tell(text("coordinator ", machine ? "vanishes with its machine" : "is killed"));
  ended();
  if (machine) disk_.process_ended(dice_.u64(), true);
}

void RealCoordinator::ended() {
  if (state_disk_) state_disk_->drop();
  if (object_disk_) object_disk_->drop();
  host_.reset();
  object_disk_.reset();
  state_disk_.reset();
  objects_.reset();
  transport_.reset();
  disk_.process_ended(dice_.u64(), false);
}

void RealCoordinator::pause(Duration length) {
  if (is_up()) paused_until_ = ground_.now() + length;
}

Duration RealCoordinator::next() const {
  if (!is_up()) return Duration::max();
  if (ground_.now() < paused_until_) return paused_until_;
  return std::min({wake_, state_disk_->next(), object_disk_->next()});
}

void RealCoordinator::advance() {
  const Duration now = ground_.now();
  if (!is_up() || now < paused_until_) return;
  bool is_due = now >= wake_;
  [[maybe_unused]] const auto ready = transport_->poll({}, {}, [&](protocol::ServerEvent event) {
    is_due = true;
    host_->on_transport(std::move(event));
  });
  for (RealWorker* worker : {state_disk_.get(), object_disk_.get()}) {
    if (worker->next() > now) continue;
    is_due = true;
    host_->woken();
    if (const Done done = worker->finish_job()) done();
  }
  if (is_due) {
    host_->woken();
    host_->every_now_and_then();
    wake_ = now + host_->wait();
  }
  state_disk_->plan(now, dice_, disk_.slowest);
  object_disk_->plan(now, dice_, disk_.slowest);
  if (!host_->failure()) {
    if (disk_.is_outlived(now))
      ground_.violated("S7", "the coordinator goes on although its disk has failed");
    return;
  }
  ground_.tell("coordinator ends: " + host_->failure()->message);
  ended();
}

}  // namespace skerry::simulation
