// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/host.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/validate.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kAliveEvery = std::chrono::seconds(1);
constexpr Duration kReportEvery = std::chrono::seconds(5);
constexpr Duration kSeekEvery = std::chrono::seconds(1);
constexpr Duration kKeepEvery = std::chrono::minutes(5);
constexpr Duration kCleanEvery = std::chrono::minutes(10);
constexpr Duration kRoomRetry = std::chrono::seconds(1);  // L6
constexpr std::size_t kRoomForChanges = 64 << 10;         // of most batches
// While the disk stalls (S15): beyond these, requests are dropped unread, as if
// lost, and heartbeats still answered.
constexpr std::size_t kBatchesUnderWay = 1000;
constexpr std::size_t kWaiting = 20'000;

std::vector<storage::Write> stored_writes(std::vector<Write> writes) {
  std::vector<storage::Write> stored;
  for (Write& write : writes) stored.push_back({kStatePrefix + write.key, std::move(write.value)});
  return stored;
}

}  // namespace

Result<std::vector<KeyValue>> read_state(const storage::Store& store) {
  ASSIGN_OR_RETURN(std::vector<storage::Entry> entries, store.scan(kStatePrefix));
  std::vector<KeyValue> state;
  for (storage::Entry& entry : entries) {
    state.push_back({entry.key.substr(sizeof(kStatePrefix) - 1), std::move(entry.value)});
  }
  return state;
}

Result<void> write_state(storage::Store& store, std::vector<KeyValue> state) {
  std::vector<storage::Write> batch;
  for (KeyValue& entry : state) batch.push_back({kStatePrefix + entry.key, std::move(entry.value)});
  return store.write(batch);
}

Result<void> check_objects(const Core& core, const storage::ObjectStore& objects) {
  for (const NamedObject& object : core.objects()) {
    // An earlier process found it damaged and told people, who may repair it.
    if (!object.complete || objects.info(object.manifest)) continue;
    return fail(ErrorCode::kCorrupt,
                text("object ", object.manifest.hex(), " of ", object.needed_by,
                     " is missing from the data folder; restore a backup"));
  }
  return {};
}

Host::Host(const Surroundings& surroundings, HostOptions options)
    : surroundings_(surroundings),
      options_(std::move(options)),
      events_([this](const Event& event) {
        Effects effects = core_->step(event, surroundings_.clock.now());
        if (options_.stepped) options_.stepped(*core_, &event, effects);
        performer_.perform(std::move(effects), core_->persisted_batch());
      }) {}

Host::~Host() {
  // What the workers still do refers to the rest.
  surroundings_.object_disk.finish();
  surroundings_.state_disk.finish();
}

Result<std::unique_ptr<Host>> Host::make(const Surroundings& surroundings, HostOptions options) {
  std::unique_ptr<Host> host(new Host(surroundings, std::move(options)));
  TRY(host->start());
  return host;
}

Result<void> Host::start() {
  ASSIGN_OR_RETURN(const std::vector<KeyValue> state, read_state(surroundings_.store));
  const Now now = surroundings_.clock.now();
  ASSIGN_OR_RETURN(
      core_, Core::load(options_.config, surroundings_.rng, surroundings_.authority, state, now));
  TRY(check_objects(*core_, surroundings_.objects));
  const bool first = core_->is_empty();
  std::array<unsigned char, 8> drawn{};
  surroundings_.rng.fill(drawn);
  std::uint64_t incarnation = 1;
  for (const unsigned char byte : drawn) incarnation = incarnation << 8 | byte;
  ASSIGN_OR_RETURN(const std::optional<std::string> records,
                   surroundings_.store.get(gossip::kTableKey));
  publisher_ =
      std::make_unique<FactPublisher>(surroundings_.identity, options_.config.connections,
                                      incarnation, records.value_or(""), now, options_.gossip);
  next_keeping_ = now.boot + kKeepEvery;
  blob_ = std::make_unique<BlobTraffic>(
      surroundings_.transport, surroundings_.store, surroundings_.objects,
      surroundings_.object_disk, surroundings_.clock,
      BlobLimits{.incarnation = incarnation, .upload = options_.upload_limit}, *publisher_,
      BlobTraffic::Hooks{
          [this](const Event& event) { feed(event); },
          [this](const NodeId& node, const Hash& object) { return core_->may_read(node, object); },
          [this](const std::string& key) { return core_->node_of_key(key); },
          [this](const Error& error) { fatal_ = error; }});
  Effects started = core_->start(now);
  if (first) {
    Effects effects;
    first_start_ = core_->first_start(options_.first_admin, now, effects);
    if (options_.keep_first_start) TRY(options_.keep_first_start(*first_start_));
    TRY(write_now(std::move(started)));
    TRY(write_now(std::move(effects)));
  } else {
    TRY(write_now(std::move(started)));
  }
  for (const storage::ObjectInfo& info : surroundings_.objects.list()) feed(stored_event(info));
  for (const NamedObject& object : core_->objects()) {
    if (object.complete && !surroundings_.objects.has(object.manifest))
      feed(ObjectDamaged{object.manifest});
  }
  surroundings_.transport.set_allowed(allowed_);
  return {};
}

// Before anything is served, so that a start that fails has told nobody
// anything.
Result<void> Host::write_now(Effects effects) {
  if (options_.stepped) options_.stepped(*core_, nullptr, effects);
  Batch batch = std::exchange(effects.batch, {});
  if (batch.number != 0) TRY(surroundings_.store.write(stored_writes(std::move(batch.writes))));
  events_.during([&] { performer_.perform(std::move(effects), core_->persisted_batch()); });
  if (batch.number != 0) feed(Persisted{batch.number});
  return {};
}

void Host::begin() { awake_by_ = surroundings_.clock.now().boot; }

// Records speak of what is durable only (S7).
void Host::tell_facts(Duration now) {
  if (!facts_ && core_->last_batch() != told_batch_ && now >= next_facts_) {
    next_facts_ = now + options_.facts_every;
    facts_ =
        Facts{core_->last_batch(), core_->run_facts(), core_->deleted_runs(), core_->revoked()};
  }
  if (!facts_ || core_->persisted_batch() < facts_->batch) return;
  publisher_->tell(facts_->runs, facts_->deleted, facts_->revoked, surroundings_.clock.now());
  told_batch_ = facts_->batch;
  facts_.reset();
}

void Host::hear_records() {
  publisher_->talk().recall(core_->recalls());
  if (const std::optional<RecordsReceived> heard = publisher_->hear(surroundings_.clock.now()))
    feed(*heard);
}

// Fetches what the disk has lost from nodes that say they hold it.
void Host::seek_lost() {
  for (const Hash& object : core_->lost_objects()) {
    std::vector<NodeId> holders = blob_->holders(object);
    if (!holders.empty()) feed(HeldElsewhere{object, std::move(holders)});
  }
}

void Host::keep_records() {
  kept_incarnation_ = publisher_->incarnation();
  surroundings_.object_disk.run(
      [this, records = publisher_->save(surroundings_.clock.now())]() -> Done {
        const Result<void> kept = surroundings_.store.write({{gossip::kTableKey, records}});
        if (kept || !surroundings_.store.failed()) return {};
        return [this, error = kept.error()] { fatal_ = error; };
      });
}

void Host::stop() {
  is_stopping_ = true;
  if (next_write_) write_next();
}

Result<void> Host::finish() {
  if (fatal_) return *fatal_;
  const Result<void> kept =
      surroundings_.store.write({{gossip::kTableKey, publisher_->save(surroundings_.clock.now())}});
  if (!kept) log_warning("the records could not be kept: " + kept.error().message);
  return {};
}

Duration Host::wait() {
  Duration now = surroundings_.clock.now().boot;
  if (now >= next_tick_) feed(Tick{});
  if (next_write_ && now >= *next_write_) write_next();
  const Duration blob = blob_->tick();
  now = surroundings_.clock.now().boot;
  const Duration timeout =
      std::max(Duration{}, std::min({next_tick_, blob, next_write_.value_or(blob)}) - now);
  awake_by_ = surroundings_.clock.now().boot + timeout;
  return timeout;
}

// A loop that comes round late (a stopped process, a machine that slept) says
// so before it reads what queued up.
void Host::woken() {
  const Duration now = surroundings_.clock.now().boot;
  const Duration lag = now - awake_by_;
  if (lag > options_.config.loop_lag) {
    log_warning("the loop came round late", {{"by", human_duration(lag)}});
    feed(LoopLag{lag});
  }
  awake_by_ = std::max(awake_by_, now);
}

void Host::every_now_and_then() {
  const Duration now = surroundings_.clock.now().boot;
  if (now >= next_alive_) {
    next_alive_ = now + kAliveEvery;
    look_for_room();
    if (options_.alive) options_.alive();
  }
  if (now >= next_report_) {
    next_report_ = now + kReportEvery;
    rate_.forget(now);
    if (const auto bytes = surroundings_.files.free_bytes(surroundings_.folder))
      feed(DiskFree{*bytes});
    if (options_.report) {
      const auto experts = core_->experts();
      const auto held = std::ranges::count_if(
          experts, [](const ExpertView& e) { return e.lease && !e.lease->lapsed; });
      options_.report(text(held, " of ", experts.size(), " experts are being trained"));
    }
  }
  tell_facts(now);
  if (now >= next_seeking_) {
    next_seeking_ = now + kSeekEvery;
    hear_records();
    seek_lost();
  }
  if (now >= next_keeping_ || publisher_->incarnation() != kept_incarnation_) {
    next_keeping_ = now + kKeepEvery;
    keep_records();
  }
  if (now >= next_cleaning_) {
    if (next_cleaning_ != Duration{}) blob_->drop_stale(core_->objects());
    next_cleaning_ = now + kCleanEvery;
  }
}

void Host::on_transport(protocol::ServerEvent event) {
  woken();
  if (const auto* closed = std::get_if<protocol::Closed>(&event)) {
    if (closed->connection.endpoint == protocol::Endpoint::kControl)
      feed(Closed{closed->connection.id});
    if (closed->connection.endpoint == protocol::Endpoint::kBlob) blob_->closed(closed->connection);
    return;
  }
  if (const auto* away = std::get_if<protocol::TurnedAway>(&event)) {
    return feed(TurnedAway{away->public_key,
                           away->address,
                           text(protocol::to_string(away->endpoint), ": ", away->why),
                           {},
                           {}});
  }
  const auto& message = std::get<protocol::Incoming>(event);
  switch (message.connection.endpoint) {
    case protocol::Endpoint::kEnrol:
      return enrol(message);
    case protocol::Endpoint::kControl:
      return control(message);
    case protocol::Endpoint::kBlob:
      return blob_->incoming(message);
    case protocol::Endpoint::kPeer:
      return;  // a coordinator has none
  }
}

bool Host::is_heard(const protocol::Incoming& message) {
  const auto verdict = rate_.ask(message.public_key, surroundings_.clock.now().boot);
  if (verdict == RequestRate::Verdict::kFirstDropped) {
    feed(
        turned_away(message, text("control: more than ", std::chrono::seconds(1) / kRequestInterval,
                                  " requests a second: requests beyond that are dropped")));
  }
  return verdict == RequestRate::Verdict::kHeard;
}

void Host::control(const protocol::Incoming& message) {
  if (!is_heard(message)) return;
  Result<pb::ControlRequest> request = protocol::parse_control_request(message.bytes);
  if (!request) {
    feed(turned_away(message, "control: sent what breaks the protocol", request.error().message));
    pb::ControlRequest unchecked;
    pb::ControlReply reply;
    if (unchecked.ParseFromString(message.bytes)) reply.set_id(unchecked.id());
    *reply.mutable_error() = protocol::to_message(request.error());
    send({message.connection.id, Endpoint::kControl, std::move(reply), 0});
    return;
  }
  // An admin may be about to make room for what stalls.
  const bool is_admins =
      (request->has_admin() || request->has_hello()) && admins_.contains(message.public_key);
  if (is_stalled() && !request->has_heartbeat() && !is_admins) return;
  if (is_admins) look_for_room();
  // Its first copy is accepted, and is answered once that is durable.
  if (is_admins && lacks_room_ && performer_.is_to_answer(message.connection.id, request->id()))
    return;
  feed(Received{message.connection.id, message.public_key, std::move(*request), message.address});
}

void Host::enrol(const protocol::Incoming& message) {
  Result<pb::EnrolRequest> request = protocol::parse_enrol_request(message.bytes);
  if (!request) {
    pb::EnrolReply reply;
    *reply.mutable_error() = protocol::to_message(request.error());
    send({message.connection.id, Endpoint::kEnrol, std::move(reply), 0});
    feed(turned_away(message, "enrol: sent what breaks the protocol", request.error().message));
    return;
  }
  if (is_stalled()) return;
  feed(EnrolReceived{message.connection.id, message.public_key, std::move(*request),
                     message.address});
}

bool Host::is_stalled() const {
  return unwritten_.size() > kBatchesUnderWay || performer_.waiting() > kWaiting;
}

// ---- What the core wants done ----

void Host::read(const Hash& object) {
  surroundings_.object_disk.run([this, object]() -> Done {
    const Result<storage::NamedManifest> named = surroundings_.objects.manifest(object);
    if (!named) return {};
    FileRead file{object, {}};
    for (const storage::ManifestPart& part : named->manifest.parts) {
      for (const storage::Chunk& chunk : part.chunks) {
        const Result<std::string> bytes = surroundings_.objects.read(object, chunk.hash);
        if (!bytes) return {};  // damaged since: asked for again
        file.bytes += *bytes;
      }
    }
    return [this, file = std::move(file)] { feed(file); };
  });
}

void Host::seek(const RunId& run) { feed(publisher_->records_of(run, surroundings_.clock.now())); }

void Host::disconnect(const ConnectionId& connection) {
  surroundings_.transport.close({protocol::Endpoint::kControl, connection});
}

void Host::write(Batch batch) {
  const bool may_go_on = batch.makes_room && next_write_;
  unwritten_.push_back({batch.number, stored_writes(std::move(batch.writes)), batch.makes_room});
  if (unwritten_.size() == 1 || may_go_on) write_next();
}

// One at a time. Where the store sees no room for it, it has touched nothing,
// and the batch waits; not if one behind it makes room.
void Host::write_next() {
  next_write_.reset();
  const bool makes_room = std::ranges::any_of(unwritten_, &Unwritten::makes_room);
  const storage::Room room = makes_room ? storage::Room::kLast : storage::Room::kAsked;
  surroundings_.state_disk.run([this, &batch = unwritten_.front(), room]() -> Done {
    return [this, written = surroundings_.store.write(batch.writes, room)] {
      if (written) return wrote();
      const bool waits =
          written.error().code == ErrorCode::kExhausted && !surroundings_.store.failed();
      if (!waits || is_stopping_) {
        fatal_ = written.error();
        return;
      }
      next_write_ = surroundings_.clock.now().boot + kRoomRetry;
      look_for_room();
    };
  });
}

// Looks before a change is made, too: one that waited would be applied later,
// though its sender was told nothing.
void Host::look_for_room() {
  const Result<void> room = surroundings_.store.has_room(kRoomForChanges, /*metadata=*/true);
  const bool lacking = next_write_ || !room;
  if (lacking == std::exchange(lacks_room_, lacking)) return;
  if (lacking) {
    log_error(
        "what was asked for waits for room",
        {{"why", room ? "the next batch is larger than the free space" : room.error().message}});
  } else {
    log_info("there is room on the disk again");
  }
  feed(RoomForBatches{lacking});
}

void Host::wrote() {
  const std::uint64_t batch = unwritten_.front().number;
  unwritten_.pop_front();
  if (!unwritten_.empty()) write_next();
  if (lacks_room_) look_for_room();
  if (!fatal_) feed(Persisted{batch});
}

void Host::add_peers(Send& message) const {
  auto* const reply = std::get_if<pb::ControlReply>(&message.message);
  if (reply == nullptr || !reply->has_hello() || !reply->hello().has_peers()) return;
  reply->mutable_hello()->set_peers(
      publisher_->peers(protocol::kPeersBytes, surroundings_.clock.now()));
}

// A message that does not fit is lost, as with its connection: every request is
// sent again.
void Host::send(Send message) {
  add_peers(message);
  if (options_.sending) options_.sending(message);
  const bool control = message.endpoint == Endpoint::kControl;
  const protocol::Connection to{control ? protocol::Endpoint::kControl : protocol::Endpoint::kEnrol,
                                message.connection};
  const std::string bytes =
      std::visit([](const auto& reply) { return reply.SerializeAsString(); }, message.message);
  if (control && bytes.size() > protocol::kControlMessageBytes) {
    pb::ControlReply reply;
    reply.set_id(std::get<pb::ControlReply>(message.message).id());
    *reply.mutable_error() = protocol::to_message(
        fail(ErrorCode::kExhausted,
             text("the answer has ", human_bytes(bytes.size()), ", over the limit")));
    [[maybe_unused]] const Result<void> sent =
        surroundings_.transport.send(to, reply.SerializeAsString());
    return;
  }
  if (const Result<void> sent = surroundings_.transport.send(to, bytes); !sent) {
    log_debug("an answer could not be sent", {{"why", sent.error().message}});
  }
}

void Host::change_roster(const std::vector<RosterChange>& changes) {
  bool removed = false;
  for (const RosterChange& change : changes) {
    if (change.allowed) {
      allowed_.insert(change.key);
      if (change.role == pb::ROLE_ADMIN) admins_.insert(change.key);
      surroundings_.transport.allow(change.key);
    } else {
      removed = allowed_.erase(change.key) > 0 || removed;
      admins_.erase(change.key);
    }
  }
  if (removed) surroundings_.transport.set_allowed(allowed_);
}

}  // namespace skerry::coordinator
