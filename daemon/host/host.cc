// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/host.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "daemon/host/object_jobs.h"
#include "daemon/host/verify.h"
#include "protocol/enrol.h"
#include "protocol/validate.h"

namespace skerry::daemon {
namespace {

constexpr Duration kLongestWait = std::chrono::seconds(1);
constexpr Duration kLookAgainEvery = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Host>> Host::make(HostParts parts, HostOptions options) {
  CoreConfig config;
  config.incarnation = options.incarnation;
  config.software = options.software;
  config.host_label = options.host_label;
  config.drain_limit = options.drain_limit;
  config.price = options.price;
  if (parts.idle_exec != nullptr) config.idle_limit = options.idle_limit;
  for (const DeviceSlot& slot : options.slots) config.slots.push_back(slot.description);
  Recovered recovered;
  ASSIGN_OR_RETURN(const std::optional<std::string> state, parts.store.get(kHostStateKey));
  recovered.state = state.value_or("");
  const auto found = [&](const storage::ObjectInfo& object) {
    recovered.objects[object.name] = object.kind == storage::ManifestKind::kCheckpoint
                                         ? ObjectKind::kCheckpoint
                                         : ObjectKind::kShard;
  };
  for (const storage::ObjectInfo& object : parts.objects.list()) {
    found(object);
    if (const auto facts = checkpoint_facts(object)) recovered.checkpoints[object.name] = *facts;
  }
  for (const storage::ObjectInfo& object : parts.objects.partials()) {
    found(object);
    recovered.partial.insert(object.name);
  }
  ASSIGN_OR_RETURN(Core core, Core::make(std::move(config), std::move(recovered)));
  ASSIGN_OR_RETURN(const std::optional<std::string> records, parts.store.get(gossip::kTableKey));
  return std::unique_ptr<Host>(
      new Host(std::move(parts), std::move(options), std::move(core), records.value_or("")));
}

Host::Host(HostParts parts, HostOptions options, Core core, const std::string& records)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      core_(std::move(core)),
      chunk_store_(parts_.objects),
      events_([this](const Event& event) { step(event); }) {
  if (parts_.peers != nullptr) make_peer_gossip(records);
  peers_ = std::make_unique<peer::Peers>(
      peer::Peers::Parts{.clock = parts_.clock,
                         .worker = parts_.disk,
                         .chunks = &chunk_store_,
                         .gossip = peer_gossip_ ? &peer_gossip_->gossip() : nullptr,
                         .certificate = peer_gossip_ ? &peer_gossip_->certificate() : nullptr},
      exchange::Config{.incarnation = options_.incarnation,
                       .upload_limit = options_.upload_limit,
                       .download_limit = options_.download_limit},
      static_cast<peer::Owner&>(*this));
}

Host::~Host() { parts_.disk.finish(); }

void Host::start() {
  parts_.transport.dial(protocol::Endpoint::kControl);
  parts_.transport.dial(protocol::Endpoint::kBlob);
  events_.feed(Tick{});
}

void Host::stop() {
  if (peer_gossip_) keep_records();
}

void Host::turn() {
  take_engine_events();
  if (parts_.idle_exec != nullptr) {
    if (auto ended = parts_.idle_exec->take_end()) push(std::move(*ended));
  }
  const Now now = parts_.clock.now();
  if (const std::optional<Write> due = state_writes_.due(now.boot)) write(*due);
  peers_->tick();
  if (wake_at_ && *wake_at_ <= now.boot) push(Tick{});
  events_.drain();
  if (peer_gossip_) look_around();
  look_again();
}

Duration Host::next_turn() const {
  const Duration now = parts_.clock.now().boot;
  return std::min({now + kLongestWait, peers_->wake_at(), wake_at_.value_or(now + kLongestWait)});
}

void Host::on_transport(protocol::ClientEvent event) {
  if (const auto* opened = std::get_if<protocol::Opened>(&event)) {
    if (opened->endpoint != protocol::Endpoint::kEnrol) refusals_ = 0;
    if (opened->endpoint == protocol::Endpoint::kControl) push(ConnectionOpened{});
    if (opened->endpoint == protocol::Endpoint::kEnrol) ask_readmission();
    if (opened->endpoint == protocol::Endpoint::kBlob) {
      peers_->disconnected(coordinator_);
      peers_->connected(coordinator_, true);
    }
  } else if (const auto* lost = std::get_if<protocol::Lost>(&event)) {
    if (lost->endpoint == protocol::Endpoint::kControl) push(ConnectionClosed{"closed"});
    if (lost->endpoint == protocol::Endpoint::kBlob) peers_->disconnected(coordinator_);
  } else if (const auto* refused = std::get_if<protocol::Refused>(&event)) {
    if (refused->own_key && parts_.peers != nullptr) {
      parts_.transport.hang_up(
          protocol::Endpoint::kEnrol);  // an answer that was lost is asked for again
      parts_.transport.dial(protocol::Endpoint::kEnrol);
    }
    if (!refused->own_key) {
      log_warning(
          "the coordinator's key is not the one this node was enrolled with, or it is too busy",
          {{"endpoint", protocol::to_string(refused->endpoint)}});
    } else if (refused->endpoint != protocol::Endpoint::kControl) {
      // The coordinator refuses the blob connection for the same reason.
    } else if (++refusals_ == 1) {
      log_warning("the coordinator does not know this node's key");
    } else if (refusals_ >= kRefusalsAllowed) {
      log_error(
          "the coordinator refuses this node's key and its certificate: it was revoked, or another "
          "coordinator "
          "was set up; enrol again with a fresh data folder and token");
      exit_code_ = kExitConfiguration;
    }
  } else if (const auto* received = std::get_if<protocol::Received>(&event)) {
    if (received->endpoint == protocol::Endpoint::kControl) {
      Result<pb::ControlReply> reply = protocol::parse_control_reply(received->bytes);
      if (reply && reply->has_hello() && peer_gossip_) {
        peer_gossip_->seen_as(reply->hello().address());
        objects_changed_ = true;
      }
      if (reply) return push(Reply{std::move(*reply)});
      log_warning("a message from the coordinator was not valid: " + reply.error().message);
    } else if (received->endpoint == protocol::Endpoint::kEnrol) {
      on_enrol_reply(received->bytes);
    } else if (received->endpoint == protocol::Endpoint::kBlob) {
      Result<pb::BlobMessage> message = protocol::parse_blob_message(received->bytes);
      if (message) return peers_->received(coordinator_, std::move(*message));
      log_warning("a blob message from the coordinator was not valid: " + message.error().message);
    }
  }
}

// A coordinator that was restored may not know this key; the certificate that
// it gave says that it did.
void Host::ask_readmission() {
  constexpr std::uint64_t kId = 1;
  const pb::EnrolRequest request = protocol::build_readmission_request(
      parts_.peers->identity, parts_.peers->coordinator_key, parts_.peers->certificate, kId);
  [[maybe_unused]] const Result<void> sent =
      parts_.transport.send(protocol::Endpoint::kEnrol, request.SerializeAsString());
}

void Host::on_enrol_reply(const std::string& bytes) {
  parts_.transport.hang_up(protocol::Endpoint::kEnrol);
  const Result<pb::EnrolReply> reply = protocol::parse_enrol_reply(bytes);
  if (!reply)
    return log_warning("an answer to this node's certificate was not valid: " +
                       reply.error().message);
  log_info("this node showed its certificate to the coordinator",
           {{"answer", reply->has_error() ? reply->error().message() : "readmitted"}});
}

// What somebody found damaged on this disk is hashed again by whom it belongs
// to; of what is wrong the core hears.
void Host::look_again() {
  const Duration now = parts_.clock.now().boot;
  if (options_.distrusted.empty() || now < next_look_again_) return;
  next_look_again_ = now + kLookAgainEvery;
  for (const Hash& object : take_distrusted(options_.distrusted)) {
    parts_.disk.run([this, object]() -> Done {
      if (!parts_.objects.has(object)) return {};  // gone, or on its way again
      Result<bool> whole = parts_.objects.verify(object);
      return [this, object, whole = std::move(whole)] {
        if ((whole && *whole) || wanted_.contains(object)) return;
        if (!whole && !check_disk(whole.error())) return;
        log_warning("an object on this disk is damaged", {{"object", object.short_hex()}});
        verified_.erase(object);
        objects_changed_ = true;
        push(ObjectFailed{object, fail(ErrorCode::kCorrupt, "it is damaged on this disk")});
      };
    });
  }
}

void Host::take_engine_events() {
  for (std::string& line : parts_.engines.take_lines()) {
    log_info(line);
    remember(std::move(line));
  }
  for (Event& event : parts_.engines.take_events()) {
    push(std::move(event));
  }
}

void Host::step(const Event& event) {
  if (exit_code_) return;
  // The core has heard all of it: only now may its snapshot go.
  if (const auto* exited = std::get_if<EngineExited>(&event)) ended_[exited->engine] = exited->slot;
  const Effects effects = core_.step(event, parts_.clock.now());
  if (parts_.stepped) parts_.stepped(event, effects);
  perform(effects, *this);
  if (std::vector<Hash> urgent = core_.urgent(); urgent != urgent_) {
    urgent_ = urgent;
    peers_->serve_only(std::move(urgent));
  }
  release_snapshots();
  // Starting an engine may have failed at once.
  take_engine_events();
}

void Host::on_user_signal() {
  on_notice({parts_.clock.now().boot + options_.drain_limit + kNoticeMargin, "SIGUSR1"});
}

void Host::fatal(const std::string& why) {
  log_error(why);
  exit_code_ = kExitRetry;
}

void Host::remember(std::string line) {
  log_ring_.push_back({parts_.clock.now().unix_ms, std::move(line)});
  if (log_ring_.size() > kLogRing) log_ring_.pop_front();
}

std::string Host::status_line() const {
  std::string line = core_.connected() ? "connected" : "coordinator away";
  for (const SlotView& slot : core_.slots()) {
    if (!slot.has_lease) continue;
    line += text("; slot ", slot.slot, ": ", slot.expert, " committed step ", slot.committed_step);
  }
  return line;
}

}  // namespace skerry::daemon
