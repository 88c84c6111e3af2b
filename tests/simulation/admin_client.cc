// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/admin_client.h"

#include <utility>

#include "base/text.h"
#include "exchange/chunk_store.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {
constexpr char kAddress[] = "admin";
constexpr Duration kRetry = seconds(2);
const exchange::PeerId kCoordinator("coordinator");

// Reads what the person offers.
class Files final : public exchange::ChunkStore {
 public:
  Files(const Library& library, const std::set<Hash>& offered)
      : library_(library), offered_(offered) {}
  Result<std::vector<Hash>> open(const storage::NamedManifest&,
                                 const std::vector<std::string>&) override {
    return fail(ErrorCode::kInvalid, "nothing is received here");
  }
  Result<void> write(const Hash&, const Hash&, std::string_view) override {
    return fail(ErrorCode::kInvalid, "nothing is received here");
  }
  Result<void> seal(const Hash&) override {
    return fail(ErrorCode::kInvalid, "nothing is received here");
  }
  Result<std::string> read(const Hash& object, const Hash& chunk) override {
    TRY(find(object));
    const Object& offered = library_.at(object);
    return chunk == object ? offered.manifest : offered.content;
  }
  Result<void> find(const Hash& object) override {
    if (!offered_.contains(object)) return fail(ErrorCode::kNotFound, "it is not offered");
    return {};
  }

 private:
  const Library& library_;
  const std::set<Hash>& offered_;
};
}  // namespace

pb::AdminRequest smallest_run(const std::string& name, const std::string& dataset) {
  pb::AdminRequest request;
  pb::RunSpec& spec = *request.mutable_run_create()->mutable_spec();
  spec.set_name(name);
  spec.set_dataset(dataset);
  spec.set_width(32);
  spec.set_depth(1);
  spec.set_heads(2);
  spec.set_patch_size(4);
  spec.set_copies(1);
  spec.set_router_kind("analytic");
  auto& train = *spec.mutable_train();
  train.set_batch_size(8);
  train.set_learning_rate(1e-3);
  train.set_clip(1);
  train.set_ema(0.999);
  train.set_label_dropout(0.1);
  train.set_precision("fp32");
  train.set_threads(1);
  return request;
}

pb::AdminRequest smallest_dataset(const std::string& name, std::uint32_t partitions,
                                  const PutFile& put) {
  pb::AdminRequest request;
  auto& dataset = *request.mutable_dataset_add();
  dataset.set_name(name);
  dataset.set_index_json("{}");
  dataset.set_partitions(partitions);
  dataset.set_samples(1000 * partitions);
  dataset.set_channels(1);
  dataset.set_image_size(28);
  const auto add = [&](const std::string& file_name, const std::string& role,
                       std::int32_t partition) {
    pb::DatasetFile& file = *dataset.add_files();
    *file.mutable_object() = put(file_name, role);
    file.set_role(role);
    file.set_partition(partition);
    file.set_samples(role == "shard" ? 1000 : 0);
  };
  add("router.safetensors", "router", -1);
  for (std::uint32_t k = 0; k < partitions; ++k) {
    add(text("shard-", k, "-0.safetensors"), "shard", static_cast<std::int32_t>(k));
    add(text("partition-", k, ".safetensors"), "partition", static_cast<std::int32_t>(k));
  }
  return request;
}

AdminClient::AdminClient(World& world, Identity identity)
    : world_(world),
      identity_(std::move(identity)),
      exchange_(exchange::Config{.incarnation = 1}) {}

void AdminClient::start() {
  for (const Endpoint endpoint : {Endpoint::kControl, Endpoint::kBlob})
    world_.network.dial(kAddress, endpoint, identity_.x25519_key, *this);
}

void AdminClient::ask(pb::AdminRequest request, Done done) {
  asked_.push_back({std::move(request), std::move(done)});
  if (asked_.size() == 1 && greeted_) say_next();
}

void AdminClient::say(const pb::AdminRequest& request) {
  if (!greeted_) return;
  pb::ControlRequest once;
  once.set_id(++last_id_);
  *once.mutable_admin() = request;
  world_.network.send_to_server(kAddress, Endpoint::kControl, once.SerializeAsString());
}

void AdminClient::send(const pb::ControlRequest& request) {
  world_.network.send_to_server(kAddress, Endpoint::kControl, request.SerializeAsString());
  again_later();
}

void AdminClient::again_later() {
  world_.timeline.after(kRetry, [this, retry = ++retry_] {
    if (retry != retry_) return;
    greeted_ ? say_next() : say_hello();
  });
}

void AdminClient::say_hello() {
  pb::ControlRequest request;
  request.set_id(hello_id_ = ++last_id_);
  *request.mutable_hello()->mutable_version() = protocol::own_version();
  request.mutable_hello()->set_software("skerry");
  send(request);
}

void AdminClient::say_next() {
  if (asked_.empty()) return;
  pb::ControlRequest request;
  request.set_id(waits_for_ = ++last_id_);
  *request.mutable_admin() = asked_.front().request;
  send(request);
}

void AdminClient::opened(Endpoint endpoint) {
  if (endpoint == Endpoint::kBlob) {
    exchange_.connected(kCoordinator, {world_.timeline.now(), kEpochStart});
    return serve();
  }
  greeted_ = false;
  say_hello();
}

void AdminClient::lost(Endpoint endpoint) {
  if (endpoint == Endpoint::kControl) greeted_ = false;
  if (endpoint == Endpoint::kBlob)
    exchange_.disconnected(kCoordinator, {world_.timeline.now(), kEpochStart});
}

void AdminClient::on_blob(const std::string& bytes) {
  auto message = protocol::parse_blob_message(bytes);
  if (!message)
    return world_.violated("wire", "the coordinator's blob message: " + message.error().message);
  if (message->has_gossip()) return;
  exchange_.received(kCoordinator, std::move(*message), {world_.timeline.now(), kEpochStart});
  serve();
}

void AdminClient::serve() {
  Files files(world_.library, files_);
  exchange::Effects effects = exchange_.take_effects();
  while (!effects.jobs.empty() || !effects.sends.empty()) {
    for (const exchange::Send& each : effects.sends)
      world_.network.send_to_server(kAddress, Endpoint::kBlob, each.message.SerializeAsString());
    for (const exchange::Job& job : effects.jobs)
      exchange_.answered(exchange::perform(files, job), {world_.timeline.now(), kEpochStart});
    effects = exchange_.take_effects();
  }
}

void AdminClient::received(Endpoint endpoint, const std::string& bytes) {
  if (endpoint == Endpoint::kBlob) return on_blob(bytes);
  auto reply = protocol::parse_control_reply(bytes);
  if (!reply)
    return world_.violated("wire",
                           "the coordinator says what no client reads: " + reply.error().message);
  if (reply->id() == hello_id_) {
    if (!reply->has_hello() || greeted_) return;
    greeted_ = true;
    ++retry_;
    return say_next();
  }
  if (asked_.empty() || reply->id() != waits_for_) return;
  if (reply->has_error()) {
    const std::string& code = reply->error().code();
    if (reply->error().message() == coordinator::kHelloFirst) {
      greeted_ = false;
      return say_hello();
    }
    // The scheduled retry asks again, as a person does once there is room.
    const bool is_full = reply->error().message() == coordinator::kNoRoom;
    if (is_full || code == to_string(ErrorCode::kUnavailable)) return;
  }
  ++retry_;
  waits_for_ = 0;
  const Asked answered = std::move(asked_.front());
  asked_.pop_front();
  if (answered.done) answered.done(*reply);
  if (!asked_.empty() && waits_for_ == 0) say_next();
}

}  // namespace skerry::simulation
