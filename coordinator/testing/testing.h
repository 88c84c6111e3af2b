// SPDX-License-Identifier: Apache-2.0
// A coordinator's core on a virtual clock, disk and network, for tests: what
// the host does, as small as it can be. Effects are carried out in their order;
// with `disk_stalls` set, batches wait and so must what depends on them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "coordinator/core/core.h"
#include "coordinator/testing/builders.h"
#include "protocol/limits.h"

namespace skerry::coordinator::testing {

class CountingRng final : public Rng {
 public:
  explicit CountingRng(std::uint64_t seed)
      : stream_(Position{.seed = seed, .purpose = ::skerry::Purpose::kId}) {}
  void fill(std::span<unsigned char> out) override {
    for (unsigned char& byte : out) byte = static_cast<unsigned char>(stream_.u32());
  }

 private:
  Stream stream_;
};

// Keys are text here: an X25519 key is the Ed25519 key reversed, a signature is
// the word "signed".
class TextAuthority final : public Authority {
 public:
  Result<NodeId> check_possession(const pb::EnrolRequest& request,
                                  const std::string& key) const override {
    const std::string own(request.ed25519_key().rbegin(), request.ed25519_key().rend());
    if (request.signature() != "signed" || own != key)
      return fail(ErrorCode::kUnauthorised, "the key is not the sender's");
    return NodeId(blake2b(request.ed25519_key()).hex().substr(0, 32));
  }
  pb::Certificate certify(pb::CertificateBody body) const override {
    pb::Certificate certificate;
    certificate.set_body(body.SerializeAsString());
    certificate.set_signature("signed by the coordinator");
    return certificate;
  }
  Result<pb::CertificateBody> open(const pb::Certificate& certificate,
                                   std::int64_t unix_ms) const override {
    pb::CertificateBody body;
    if (certificate.signature() != "signed by the coordinator" ||
        !body.ParseFromString(certificate.body()))
      return fail(ErrorCode::kCorrupt, "the certificate is another coordinator's");
    if (unix_ms >= body.expires_unix_ms())
      return fail(ErrorCode::kUnauthorised, "the certificate has expired");
    return body;
  }
};

class Harness {
 public:
  Harness() {
    config.recall_least = {};
    config.stall = std::chrono::hours(10'000);  // most tests commit nothing
    open();
  }

  Config config;
  Now now{std::chrono::hours(1), 1'700'000'000'000};
  std::map<std::string, std::string> disk;
  bool disk_stalls = false;
  std::vector<Fetch> fetches;
  std::vector<Hash> cancelled;
  std::vector<Drop> dropped;
  std::vector<Hash> verifies;
  std::vector<Hash> reads;
  std::vector<RunId> seeks;
  std::vector<ConnectionId> disconnected;
  std::map<Hash, ObjectStored> objects;  // of the object store: they outlive a restart
  FirstStart first;
  Who admin = make_who("admin");

  Core& core() { return *core_; }

  // Kills the process and starts it again on what is durable.
  void restart() {
    waiting_.clear();
    batches_.clear();
    inbox_.clear();
    fetches.clear();
    open();
    for (const auto& [hash, object] : objects) step(object);
  }

  // Starts on a backup instead of what the disk holds, and hears of its nodes
  // that nothing was revoked since.
  void restore(const std::map<std::string, std::string>& backup) {
    begin_restore(backup);
    RecordsReceived heard;
    for (const auto& [key, value] : disk) {
      if (key.starts_with("node/")) heard.recalled.emplace_back(key.substr(5));
    }
    step(heard);
    if (core().recalls()) run_for(config.recall_limit);  // it knew of no node
  }
  // It asks its nodes, and answers nobody.
  void begin_restore(const std::map<std::string, std::string>& backup) {
    std::vector<KeyValue> state;
    for (const auto& [key, value] : backup) state.push_back({key, value});
    const auto restored = Core::restored(state, now.unix_ms, Core::Tokens::kExpire);
    SKERRY_CHECK(restored.has_value(), restored ? "" : restored.error().message);
    disk.clear();
    for (const KeyValue& entry : *restored) disk[entry.key] = entry.value;
    restart();
  }

  void step(const Event& event) { apply(core_->step(event, now)); }

  void apply(Effects effects) {
    if (effects.batch.number != 0) {
      batches_.push_back({effects.batch.number, std::move(effects.batch.writes)});
    } else {
      SKERRY_CHECK(effects.batch.writes.empty(), "writes come with a batch");
    }
    for (Send& send : effects.sends) waiting_.push_back(std::move(send));
    for (Fetch& fetch : effects.fetches) fetches.push_back(std::move(fetch));
    for (Hash& hash : effects.cancel_fetches) cancelled.push_back(hash);
    for (Drop& drop : effects.drops) {
      objects.erase(drop.manifest);
      dropped.push_back(drop);
    }
    for (const Hash& hash : effects.verifies) verifies.push_back(hash);
    for (const Hash& hash : effects.reads) reads.push_back(hash);
    for (const RunId& run : effects.seeks) seeks.push_back(run);
    for (ConnectionId& connection : effects.disconnects) disconnected.push_back(connection);
    next_ = effects.next;
    deliver();
    if (!disk_stalls) persist();
  }

  // All that waits becomes durable, batch by batch.
  void persist() {
    while (!batches_.empty()) {
      for (const Write& write : batches_.front().second) {
        if (write.value) {
          disk[write.key] = *write.value;
        } else {
          disk.erase(write.key);
        }
      }
      const std::uint64_t batch = batches_.front().first;
      batches_.pop_front();
      apply(core_->step(Persisted{batch}, now));
    }
  }

  // Time passes, with the ticks asked for; `each_second` is called once a
  // second.
  template <class EachSecond>
  void run_for(Duration duration, EachSecond each_second) {
    const Duration end = now.boot + duration;
    Duration second = now.boot + std::chrono::seconds(1);
    while (now.boot < end) {
      const Duration to =
          std::min({std::max(next_, now.boot + std::chrono::milliseconds(1)), second, end});
      now.unix_ms += (to - now.boot) / std::chrono::milliseconds(1);
      now.boot = to;
      if (now.boot >= second) {
        second += std::chrono::seconds(1);
        each_second();
      }
      step(Tick{});
    }
  }
  void run_for(Duration duration) {
    run_for(duration, [] {});
  }

  // ---- Messages. Each returns the answer, which must have left. ----

  pb::EnrolReply enrol(const Who& who, const pb::TokenCreated& token) {
    EnrolReceived event{"enrol-" + who.name, who.key, {}};
    event.request.set_token_id(token.info().id());
    event.request.set_token_secret(token.secret());
    return enrol(who, std::move(event));
  }
  pb::EnrolReply readmit(const Who& who, const pb::Certificate& certificate) {
    EnrolReceived event{"enrol-" + who.name, who.key, {}};
    *event.request.mutable_certificate() = certificate;
    return enrol(who, std::move(event));
  }
  pb::EnrolReply enrol(const Who& who, EnrolReceived event) {
    event.request.set_ed25519_key(who.ed25519);
    event.request.set_signature("signed");
    event.request.set_name(who.name);
    enrol_inbox_.clear();
    step(event);
    SKERRY_CHECK(!enrol_inbox_.empty(), "an enrolment is answered");
    return enrol_inbox_.back();
  }

  std::vector<pb::ControlReply> send(const Who& who, pb::ControlRequest request) {
    if (request.id() == 0) request.set_id(++next_request_);
    inbox_[who.connection].clear();
    step(Received{who.connection, who.key, std::move(request), who.address});
    return inbox_[who.connection];
  }
  pb::ControlReply ask(const Who& who, pb::ControlRequest request) {
    const auto replies = send(who, std::move(request));
    SKERRY_CHECK(!replies.empty(), "a request is answered");
    return replies.back();
  }
  // What came since, unasked for.
  std::vector<pb::ControlReply>& inbox(const Who& who) { return inbox_[who.connection]; }

  pb::ControlReply hello(Who& who, std::uint32_t slots = 1) {
    const auto replies = send_hello(who, slots);
    SKERRY_CHECK(!replies.empty(), "a Hello is answered");
    return replies.back();
  }
  std::vector<pb::ControlReply> send_hello(Who& who, std::uint32_t slots = 1) {
    if (who.connection.empty())
      who.connection = who.name + "#" + std::to_string(++next_connection_);
    pb::ControlRequest request;
    auto& hello = *request.mutable_hello();
    hello.mutable_version()->set_major(protocol::kVersionMajor);
    hello.mutable_version()->set_minor(protocol::kVersionMinor);
    hello.set_incarnation(who.incarnation);
    hello.set_generation(who.generation);
    hello.set_host_label(who.host);
    hello.set_price(who.price);
    for (std::uint32_t slot = 0; slot < slots && who.incarnation != 0; ++slot) {
      hello.add_slots()->set_index(slot);
      hello.mutable_slots(static_cast<int>(slot))->set_device(who.device);
      hello.mutable_slots(static_cast<int>(slot))->set_memory_bytes(who.memory_bytes);
    }
    return send(who, std::move(request));
  }

  // A node that is enrolled and has said Hello.
  Who join(const std::string& name, std::uint32_t slots = 1, const std::string& host = "") {
    Who who = make_who(name);
    who.host = host;
    return join(std::move(who), slots);
  }
  // One whose slots are such cards.
  Who join_card(const std::string& name, const std::string& device, std::uint64_t memory_bytes) {
    Who who = make_who(name);
    who.device = device;
    who.memory_bytes = memory_bytes;
    return join(std::move(who), 1);
  }
  // One that costs so many dollars an hour.
  Who join_priced(const std::string& name, double price, std::uint32_t slots = 1) {
    Who who = make_who(name);
    who.price = price;
    return join(std::move(who), slots);
  }
  Who join(Who who, std::uint32_t slots) {
    SKERRY_CHECK(!enrol(who, first.token).has_error(), "the first token enrols");
    who.incarnation = ++next_incarnation_;
    hello(who, slots);
    return who;
  }

  // The same process dials again.
  void reconnect(Who& who, std::uint32_t slots = 1) {
    who.connection.clear();
    hello(who, slots);
  }

  pb::HeartbeatReply heartbeat(Who& who, bool draining = false) {
    pb::Heartbeat said;
    said.set_draining(draining);
    return heartbeat(who, std::move(said));
  }
  // `said`: what a test wants in it, beside what every heartbeat has.
  pb::HeartbeatReply heartbeat(Who& who, pb::Heartbeat said) {
    pb::ControlRequest request;
    *request.mutable_heartbeat() = std::move(said);
    request.mutable_heartbeat()->set_incarnation(who.incarnation);
    request.mutable_heartbeat()->set_sequence(++who.sequence);
    request.mutable_heartbeat()->set_assignment_version(who.applied);
    for (const std::string& manifest : who.durable) {
      pb::ReplicaStatus& replica = *request.mutable_heartbeat()->add_replicas();
      replica.set_manifest(manifest);
      replica.set_durable(true);
      replica.set_has_shards(true);
    }
    return ask(who, std::move(request)).heartbeat();
  }

  pb::Assignment assignment(const Who& who) {
    pb::ControlRequest request;
    request.mutable_get_assignment();
    return ask(who, std::move(request)).assignment();
  }

  // The node is given its assignment, and what it is to hold besides becomes
  // durable there.
  pb::Assignment replicate(Who& who) {
    pb::Assignment told = assignment(who);
    who.applied = told.version();
    who.durable.clear();
    for (const pb::Replica& replica : told.replicas())
      who.durable.insert(replica.object().manifest());
    heartbeat(who);
    return told;
  }

  pb::AdminReply admin_ask(const pb::AdminRequest& request) {
    pb::ControlRequest message;
    *message.mutable_admin() = request;
    if (admin.connection.empty()) hello(admin);
    const pb::ControlReply answer = ask(admin, std::move(message));
    last_error = answer.error();
    return answer.admin();
  }
  pb::Error last_error;  // of the last admin_ask; empty where it went well

  template <class Set>
  pb::AdminReply admin_ask(Set set) {
    pb::AdminRequest request;
    set(request);
    return admin_ask(request);
  }

  // Asks, and waits for no answer: a disk that stalls holds it back.
  template <class Set>
  void admin_say(Set set) {
    pb::ControlRequest request;
    set(*request.mutable_admin());
    send(admin, std::move(request));
  }

  // A dataset that is uploaded and ready.
  void add_dataset(const std::string& name, std::uint32_t partitions) {
    pb::AdminRequest request;
    *request.mutable_dataset_add() = dataset(name, partitions);
    admin_ask(request);
    store_fetched_files();
  }

  void store_fetched_files() {
    while (!fetches.empty()) {
      const Fetch fetch = fetches.front();
      fetches.erase(fetches.begin());
      store({fetch.manifest, fetch.manifest_bytes, fetch.bytes, false, {.name = fetch.name}});
    }
  }
  void store(const ObjectStored& object) {
    objects[object.manifest] = object;
    step(object);
  }

  // Dataset "data" and a run on it; its id.
  std::string create_run(const std::string& name, std::uint32_t experts,
                         std::uint64_t steps = 100) {
    if (!has_dataset_) add_dataset("data", experts);
    has_dataset_ = true;
    return create_run(run_spec(name, steps));
  }
  std::string create_run(const pb::RunSpec& spec) {
    const auto reply = admin_ask(
        [&](pb::AdminRequest& request) { *request.mutable_run_create()->mutable_spec() = spec; });
    return reply.runs().runs_size() > 0 ? reply.runs().runs(0).id() : "";
  }

  pb::RunInfo run(const std::string& name) {
    return admin_ask([&](pb::AdminRequest& request) { request.mutable_run_show()->set_name(name); })
        .runs()
        .runs(0);
  }

  std::vector<pb::Event> events(const std::string& kind = "") {
    std::vector<pb::Event> all;
    std::uint64_t after = 0;
    while (true) {
      const auto reply = admin_ask(
          [&](pb::AdminRequest& request) { request.mutable_event_list()->set_after(after); });
      for (const pb::Event& event : reply.events().events()) {
        if (kind.empty() || event.kind() == kind) all.push_back(event);
      }
      if (reply.events().next() == after) return all;
      after = reply.events().next();
    }
  }

  pb::ControlReply return_lease(const Who& who, const pb::SlotAssignment& slot,
                                const std::string& reason) {
    pb::ControlRequest request;
    auto& lease = *request.mutable_return_lease();
    lease.set_run(slot.run());
    lease.set_expert(slot.expert());
    lease.set_epoch(slot.epoch());
    lease.set_reason(reason);
    return ask(who, std::move(request));
  }
  pb::ControlReply return_lease(const Who& who, const std::string& reason) {
    return return_lease(who, assignment(who).slots(0), reason);
  }

  pb::CommitReply send_commit(const Who& who, const pb::Commit& commit) {
    pb::ControlRequest request;
    *request.mutable_commit() = commit;
    return ask(who, std::move(request)).commit();
  }

  // Commit, fetch, answer.
  pb::CommitReply commit(const Who& who, const pb::Commit& commit) {
    const pb::CommitReply reply = send_commit(who, commit);
    if (reply.status() != pb::COMMIT_FETCHING) return reply;
    inbox_[who.connection].clear();
    store(object_of(commit));
    SKERRY_CHECK(!inbox_[who.connection].empty(), "the last asker is answered");
    return inbox_[who.connection].back().commit();
  }
  pb::CommitReply commit_round(const Who& who, int slot = 0, std::uint64_t steps = 10) {
    return commit(who, next_commit(assignment(who).slots(slot), steps));
  }

 private:
  void open() {
    std::vector<KeyValue> state;
    for (const auto& [key, value] : disk) state.push_back({key, value});
    auto loaded = Core::load(config, rng_, authority_, state, now);
    SKERRY_CHECK(loaded.has_value(), loaded ? "" : loaded.error().message);
    core_ = std::move(*loaded);
    apply(core_->start(now));
    if (core_->is_empty()) {
      Effects effects;
      first = core_->first_start({admin.id, admin.ed25519, admin.key, "admin"}, now, effects);
      apply(std::move(effects));
      run_for(config.lease + config.grace);  // past the recovery window
    }
    admin.connection.clear();
  }

  // Messages cross a wire: what cannot be parsed again is a defect.
  void deliver() {
    while (!waiting_.empty()) {
      // Order per connection is kept by the transport, but an early answer
      // overtakes one that waits for the disk.
      const auto ready = std::find_if(waiting_.begin(), waiting_.end(), [&](const Send& send) {
        return send.after_batch <= core_->persisted_batch();
      });
      if (ready == waiting_.end()) return;
      if (const auto* reply = std::get_if<pb::ControlReply>(&ready->message)) {
        pb::ControlReply received;
        SKERRY_CHECK(received.ParseFromString(reply->SerializeAsString()), "a reply parses");
        SKERRY_CHECK(reply->ByteSizeLong() <= protocol::kControlMessageBytes,
                     "a reply is within its limit");
        inbox_[ready->connection].push_back(std::move(received));
      } else {
        enrol_inbox_.push_back(std::get<pb::EnrolReply>(ready->message));
      }
      waiting_.erase(ready);
    }
  }

  CountingRng rng_{1};
  TextAuthority authority_;
  std::unique_ptr<Core> core_;
  std::deque<std::pair<std::uint64_t, std::vector<Write>>> batches_;
  std::deque<Send> waiting_;
  std::map<std::string, std::vector<pb::ControlReply>> inbox_;
  std::vector<pb::EnrolReply> enrol_inbox_;
  Duration next_{};
  std::uint64_t next_request_ = 0;
  std::uint64_t next_connection_ = 0;
  std::uint64_t next_incarnation_ = 100;
  bool has_dataset_ = false;
};

inline ExpertView expert(Harness& harness, std::size_t index = 0) {
  return harness.core().experts().at(index);
}

inline bool held_by(Harness& harness, const Who& who, std::size_t index = 0) {
  const ExpertView view = expert(harness, index);
  return view.lease && !view.lease->lapsed && view.lease->node == who.id;
}

}  // namespace skerry::coordinator::testing
