// SPDX-License-Identifier: Apache-2.0
// Drives a daemon's core in tests, with virtual time and one or more slots.
// Helpers stand in for the coordinator, the engine and the disk. The harness
// keeps every effect of every step.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/core/core.h"
#include "daemon/state.pb.h"

namespace skerry::daemon {

inline pb::ObjectRef object(const std::string& name) {
  pb::ObjectRef ref;
  ref.set_manifest(blake2b(name).raw());
  ref.set_manifest_bytes(100);
  ref.set_bytes(1000);
  return ref;
}

class Harness {
 public:
  explicit Harness(Recovered recovered = {}, unsigned slots = 1) {
    CoreConfig config;
    config.incarnation = 42;
    for (unsigned i = 0; i < slots; ++i) {
      pb::Slot& slot = config.slots.emplace_back();
      slot.set_index(i);
      slot.set_device("NVIDIA H200");
    }
    auto made = Core::make(std::move(config), std::move(recovered));
    EXPECT_TRUE(made.has_value());
    core = std::make_unique<Core>(std::move(*made));
    step(Tick{});
  }

  Effects step(const Event& event) {
    last = core->step(event, Now{now, 0});
    if (auto_persist) {
      for (const Write& write : last.writes) saved = write.state;
      if (!last.writes.empty())
        append(core->step(Persisted{last.writes.back().ticket}, Now{now, 0}));
    }
    for (const auto& send : last.sends) sent.push_back(send);
    if (last.idle_exec) idle_orders.push_back(*last.idle_exec);
    starts.insert(starts.end(), last.starts.begin(), last.starts.end());
    drops.insert(drops.end(), last.drops.begin(), last.drops.end());
    fetches.insert(fetches.end(), last.fetches.begin(), last.fetches.end());
    cancelled.insert(cancelled.end(), last.cancels.begin(), last.cancels.end());
    return last;
  }
  // Ticks at each wake-up, as a host does.
  void pass(Duration time) {
    const Duration until = now + time;
    while (true) {
      const Duration next = last.wake_at.value_or(until);
      if (next >= until) break;
      now = std::max(next, now);
      step(Tick{});
    }
    now = until;
    step(Tick{});
  }

  // ---- Messages of the coordinator ----
  pb::ControlReply reply_to(std::uint64_t id) {
    pb::ControlReply reply;
    reply.set_id(id);
    return reply;
  }
  void say(const pb::ControlReply& reply) { step(Reply{reply}); }
  void connect(std::uint64_t generation = 1) {
    step(ConnectionOpened{});
    answer_hello(generation);
  }
  void answer_hello(std::uint64_t generation = 1) {
    auto reply = reply_to(last_sent(&pb::ControlRequest::has_hello).id());
    reply.mutable_hello()->set_generation(generation);
    reply.mutable_hello()->set_heartbeat_ms(1000);
    reply.mutable_hello()->set_lease_ms(6000);
    reply.mutable_hello()->set_assignment_version(version);
    say(reply);
  }
  pb::SlotAssignment grant(std::uint64_t counter = 1, unsigned slot = 0, unsigned expert = 3) {
    pb::SlotAssignment assignment;
    assignment.set_slot(slot);
    assignment.set_run("r-0000000001");
    assignment.set_expert(expert);
    assignment.set_epoch(Epoch(1, counter).value());
    assignment.set_attempt(1);
    assignment.set_steps_target(1000);
    assignment.mutable_spec()->set_offline_rounds(3);
    assignment.mutable_spec()->set_round_steps(10);
    *assignment.add_shards() = object("shard");
    return assignment;
  }
  // A new assignment version: announced by heartbeat, requested and answered.
  void assign(const std::vector<pb::SlotAssignment>& slots) {
    ++version;
    assigned = slots;
    if (!is_asked()) answer_heartbeat(false);
    answer_assignment();
  }
  void answer_assignment() {
    answered = last_sent(&pb::ControlRequest::has_get_assignment).id();
    auto reply = reply_to(answered);
    reply.mutable_assignment()->set_version(version);
    for (const auto& slot : assigned) *reply.mutable_assignment()->add_slots() = slot;
    for (const auto& replica : replicas) *reply.mutable_assignment()->add_replicas() = replica;
    say(reply);
  }
  void answer_heartbeat(bool renew = true) {
    if (!has_sent(&pb::ControlRequest::has_heartbeat)) pass(std::chrono::seconds(1));
    const auto request = last_sent(&pb::ControlRequest::has_heartbeat);
    auto reply = reply_to(request.id());
    reply.mutable_heartbeat()->set_sequence(request.heartbeat().sequence());
    reply.mutable_heartbeat()->set_assignment_version(version);
    for (const auto& slot : assigned) {
      if (!renew) break;
      auto& lease = *reply.mutable_heartbeat()->add_renewed();
      lease.set_run(slot.run());
      lease.set_expert(slot.expert());
      lease.set_epoch(slot.epoch());
    }
    sent.clear();
    say(reply);
  }
  // Answers heartbeats and renews leases for this long.
  void live(Duration time) {
    for (const Duration until = now + time; now < until;) {
      pass(std::min<Duration>(std::chrono::seconds(1), until - now));
      if (has_sent(&pb::ControlRequest::has_heartbeat)) answer_keeping();
    }
  }
  void answer_keeping() {
    const auto kept = sent;
    answer_heartbeat();
    sent.insert(sent.begin(), kept.begin(), kept.end());
  }
  pb::CommitReply commit_reply(pb::CommitStatus status) {
    pb::CommitReply reply;
    reply.set_status(status);
    return reply;
  }
  void answer_commit(const pb::CommitReply& commit) {
    auto reply = reply_to(last_sent(&pb::ControlRequest::has_commit).id());
    *reply.mutable_commit() = commit;
    say(reply);
  }
  void answer_commit(pb::CommitStatus status) { answer_commit(commit_reply(status)); }
  void refuse(std::uint64_t id, ErrorCode code) {
    auto reply = reply_to(id);
    reply.mutable_error()->set_code(to_string(code));
    say(reply);
  }
  void acknowledge(std::uint64_t id) {
    auto reply = reply_to(id);
    reply.mutable_ack();
    say(reply);
  }

  // ---- Events of the engine and the disk ----
  void stored(const std::string& name) { step(ObjectStored{blake2b(name)}); }
  void stored(const std::string& name, const CheckpointFacts& facts) {
    step(ObjectStored{blake2b(name), {}, facts});
  }
  std::uint64_t ready(Step at = 0, unsigned slot = 0) {
    EngineReady event{.slot = slot, .engine = engine};
    event.ready.set_step(at);
    event.ready.set_fingerprint("fake");
    step(event);
    return engine;
  }
  void progress(Step at) {
    EngineProgress event{.engine = engine};
    event.progress.set_step(at);
    event.progress.set_loss(0.5);
    step(event);
  }
  void snapshot(Step from, Step to, double loss = 0.5, const std::string& fingerprint = "") {
    EngineSnapshot event{.engine = engine};
    event.snapshot.set_from_step(from);
    event.snapshot.set_to_step(to);
    event.snapshot.set_loss(loss);
    event.snapshot.set_samples((to - from) * 8);
    event.snapshot.set_fingerprint(fingerprint);
    step(event);
  }
  void snapshot_stored(Step to) {
    step(SnapshotStored{0, engine, object(text("checkpoint ", to))});
  }
  void round(Step from, Step to) {
    snapshot(from, to);
    snapshot_stored(to);
  }
  void exit_engine(const std::string& how = "exit code 1", bool for_memory = false) {
    step(EngineExited{.engine = engine,
                      .how = how,
                      .last_lines = {"last words"},
                      .killed_for_memory = for_memory});
  }
  void finish_engine(Step at) {
    EngineFinished event{.engine = engine};
    event.finished.set_step(at);
    step(event);
    exit_engine("exit code 0");
  }
  // Connected, granted, fetched, training from the start, lease renewed.
  void train() {
    connect();
    assign({grant()});
    stored("shard");
    take_engine();
    ready();
    answer_heartbeat();
  }

  // ---- Effects so far ----
  using Has = bool (pb::ControlRequest::*)() const;
  bool has_sent(Has has) const {
    for (const auto& request : sent) {
      if ((request.*has)()) return true;
    }
    return false;
  }
  bool is_asked() const {
    const auto has = &pb::ControlRequest::has_get_assignment;
    return has_sent(has) && last_sent(has).id() != answered;
  }
  pb::ControlRequest last_sent(Has has) const {
    for (auto at = sent.rbegin(); at != sent.rend(); ++at) {
      if (((*at).*has)()) return *at;
    }
    ADD_FAILURE() << "nothing of this kind was sent";
    return {};
  }
  SlotView view(unsigned slot = 0) const { return core->slots().at(slot); }
  // Whether the core started an engine that the test has not taken yet.
  bool started() const { return !starts.empty() && starts.back().engine != engine; }
  void take_engine() { engine = starts.back().engine; }

  std::unique_ptr<Core> core;
  Duration now = std::chrono::seconds(100);
  Effects last;
  std::vector<pb::ControlRequest> sent;
  std::string saved;
  bool auto_persist = true;
  std::uint64_t version = 1;
  std::uint64_t answered = 0;  // the id of the last request for an assignment that was
  std::uint64_t engine = 0;
  std::vector<StartEngine> starts;
  std::vector<IdleExecOrder> idle_orders;
  std::vector<FetchObject> fetches;
  std::vector<DropObject> drops;
  std::vector<Hash> cancelled;
  std::vector<pb::SlotAssignment> assigned;
  std::vector<pb::Replica> replicas;  // named by the next assignment

 private:
  void append(Effects more) {
    last.wake_at = more.wake_at;
    const auto move = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    move(last.sends, more.sends);
    move(last.starts, more.starts);
    move(last.stops, more.stops);
    move(last.stores, more.stores);
    move(last.fetches, more.fetches);
    move(last.drops, more.drops);
    move(last.cancels, more.cancels);
    move(last.log, more.log);
    if (more.exit_code) last.exit_code = more.exit_code;
  }
};

}  // namespace skerry::daemon
