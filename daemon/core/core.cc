// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/core.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/clean_text.h"
#include "daemon/core/cards.h"
#include "daemon/core/idle.h"
#include "daemon/core/objects.h"
#include "daemon/core/session.h"
#include "daemon/core/slot.h"
#include "daemon/state.pb.h"

namespace skerry::daemon {
namespace {

constexpr std::uint32_t kStateFormat = 1;
constexpr Duration kLogRetry = seconds(2);
constexpr Duration kGreetAgain = seconds(1);
constexpr std::size_t kToldLaterKept =
    64;  // transfers, and faults of peers, while the coordinator is away
constexpr int kExitDone = 0;
constexpr int kExitRetry = 75;
constexpr int kExitConfiguration = 78;

// As much of it as a message has room for.
template <class Item>
void move_front(std::deque<Item>& waiting, google::protobuf::RepeatedPtrField<Item>& out,
                std::size_t room) {
  for (; !waiting.empty() && static_cast<std::size_t>(out.size()) < room; waiting.pop_front())
    *out.Add() = std::move(waiting.front());
}

}  // namespace

struct Core::Impl {
  CoreConfig config;
  Objects objects;
  Session session;
  Cards cards;
  std::uint64_t last_engine = 0;
  std::vector<Slot> slots;
  std::vector<std::pair<std::uint32_t, Work>> restored;  // until the first step gives them a time
  std::vector<KeptCheckpoint> kept;                      // the newest last
  std::vector<pb::ObjectRef> files;                      // beside them
  std::vector<Hash> outlived;          // checkpoints that a restored coordinator may not know
  std::vector<pb::Replica> replicas;   // as last assigned
  std::set<std::string> durable_told;  // of them, by the last heartbeat

  std::uint64_t generation = 0;  // highest seen
  std::uint64_t last_ticket = 0;
  std::uint64_t persisted_ticket = 0;
  std::uint64_t generation_ticket = 0;  // nothing is asked for before it is durable
  bool answered =
      false;  // an assignment was applied in this process, and since a restore of the coordinator
  struct Leaving {
    Duration deadline{};  // the machine may end then
    Duration until{};     // commits must be through by then
    std::string what;     // the platform's word
    bool exits = false;   // SIGTERM: the process ends
  };
  std::optional<Leaving> leaving;
  Idle idle;
  std::string advice;            // to expect a notice; empty: none
  std::uint64_t drain_told = 0;  // the first heartbeat that said so; 0: none yet
  bool drain_heard = false;
  bool leave_now = false;
  std::optional<int> exit_code;
  std::optional<Duration> last_step;
  std::deque<pb::Transfer> transfers;  // to be told
  std::deque<pb::PeerFault> faults;    // likewise
  std::uint64_t log_asked = 0;
  Duration log_asked_at{};

  Impl(CoreConfig settings, const Recovered& found)
      : config(std::move(settings)),
        objects(found.objects, found.checkpoints),
        session(config.incarnation),
        cards(config.slots),
        idle(config.idle_limit) {
    slots.reserve(config.slots.size());
    for (const pb::Slot& slot : config.slots)
      slots.emplace_back(slot, objects, session, cards, last_engine);
  }

  Slot* slot_at(std::uint32_t index) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (config.slots[i].index() == index) return &slots[i];
    }
    return nullptr;
  }

  // ---- Events ----
  void on(const ConnectionOpened&, Context&) {
    session.opened();
    forget_commit_ids();
  }
  void on(const ConnectionClosed& event, Context& context) {
    if (session.phase() != Session::Phase::kClosed) {
      context.log(LogLevel::kWarning, "connection to the coordinator lost: " + event.reason);
    }
    session.closed();
    forget_commit_ids();
  }
  void on(const Tick&, Context&) {}
  void on(const Persisted& event, Context&) {
    persisted_ticket = std::max(persisted_ticket, event.ticket);
  }
  void on(const DrainRequested&, Context& context) {
    if (leaving && leaving->exits) {
      leave_now = true;
      return;
    }
    const Duration deadline = context.now.boot + config.drain_limit;
    leave({.deadline = deadline, .until = deadline, .what = "SIGTERM", .exits = true}, context);
  }
  void on(const NoticeReceived& event, Context& context) {
    if (!event.deadline) {
      advice = event.what;
      if (!advice.empty())
        context.log(LogLevel::kWarning, text(advice, ": this node takes no new lease"));
      session.heartbeat_soon();
      return;
    }
    const Duration limit = context.now.boot + config.drain_limit;
    leave({.deadline = *event.deadline,
           .until = std::min(*event.deadline - kNoticeMargin, limit),
           .what = event.what},
          context);
  }
  void on(const IdleExecEnded& event, Context& context) {
    idle.ended(event, context);
    session.heartbeat_soon();
  }
  void on(const CardsCounted& event, Context& context) {
    for (const std::uint32_t slot : event.lost) {
      if (!cards.is_lost(slot))
        context.log(LogLevel::kError, text("slot ", slot,
                                           ": its card is lost; nothing is trained "
                                           "there until this daemon starts again"));
    }
    cards.counted(event.lost);
    for (Slot& slot : slots) slot.cards_counted();
    session.heartbeat_soon();
  }
  void on(const ObjectStored& event, Context&) {
    objects.stored(event.manifest, event.checkpoint);
    if (event.transfer.manifest().empty()) return;
    transfers.push_back(event.transfer);
    if (transfers.size() > kToldLaterKept) transfers.pop_front();
  }
  void on(const PeerFaulted& event, Context&) {
    faults.push_back(event.fault);
    if (faults.size() > kToldLaterKept) faults.pop_front();
  }
  void on(const ObjectProgress& event, Context&) { objects.progress(event); }
  void on(const ObjectFailed& event, Context& context) {
    objects.failed(event.manifest, event.error, context);
    if (event.error.code == ErrorCode::kExhausted) make_room(context);
    if (event.error.code == ErrorCode::kCorrupt || event.error.code == ErrorCode::kNotFound) {
      forget_kept(
          [&](const KeptCheckpoint& each) { return name_of(each.object) == event.manifest; },
          context);
      objects.distrust(event.manifest);  // the next need() fetches it again
    }
    for (Slot& slot : slots) slot.object_failed(event.manifest, event.error, context);
  }
  void on(const LogCollected& event, Context& context) {
    if (!session.is_open() || event.request != log_asked) return;
    pb::ControlRequest request;
    request.set_id(session.next_id());
    request.mutable_node_log()->set_request(event.request);
    for (const std::string& line : event.lines) request.mutable_node_log()->add_lines(line);
    context.out.sends.push_back(std::move(request));
  }
  void on(const HoldFiles& event, Context&) { files = event.files; }
  void on(const RunGone& event, Context& context) {
    forget_kept([&](const KeptCheckpoint& each) { return each.expert.run.str() == event.run; },
                context);
    const auto gone = std::erase_if(outlived, [&](const Hash& each) {
      const CheckpointFacts* const facts = objects.facts_of(each);
      return facts != nullptr && facts->expert.run.str() == event.run;
    });
    if (gone > 0) context.dirty = true;
  }
  void on(const SnapshotFailed& event, Context& context) {
    if (Slot* slot = slot_at(event.slot); slot != nullptr) slot->on(event, context);
    if (event.error.code == ErrorCode::kExhausted) make_room(context);
  }
  template <class SlotEvent>
  void on(const SlotEvent& event, Context& context) {
    if (Slot* slot = slot_at(event.slot); slot != nullptr) slot->on(event, context);
  }
  void on(const Reply& event, Context& context) {
    const pb::ControlReply& reply = event.reply;
    switch (reply.body_case()) {
      case pb::ControlReply::kError:
        return on_error(reply.id(), reply.error(), context);
      case pb::ControlReply::kHello:
        return on_hello(reply.id(), reply.hello(), context);
      case pb::ControlReply::kHeartbeat:
        return on_heartbeat(reply.id(), reply.heartbeat(), context);
      case pb::ControlReply::kAssignment:
        return on_assignment(reply.id(), reply.assignment(), context);
      case pb::ControlReply::kCommit:
        return on_commit(reply.id(), reply.commit(), context);
      case pb::ControlReply::kAck:
        session.answered_post(reply.id(), false, context);
        return;
      default:
        return;
    }
  }

  // The nearest deadline holds.
  void leave(Leaving next, Context& context) {
    if (leaving) {
      next.deadline = std::min(next.deadline, leaving->deadline);
      next.until = std::min(next.until, leaving->until);
      next.exits |= leaving->exits;
    }
    leaving = std::move(next);
    context.log(LogLevel::kInfo,
                text(leaving->what, ", ", milliseconds_left(context) / 1000,
                     " s left: draining: what was trained is committed, leases are returned"));
    for (Slot& slot : slots) slot.drain(leaving->until);
    // The successor is chosen by this word: it goes out before any other.
    session.heartbeat_soon();
    beat_if_due(context);
  }

  // REQUIRES: leaving.
  std::uint64_t milliseconds_left(const Context& context) const {
    const Duration left = std::max(leaving->deadline - context.now.boot, Duration{});
    return std::min<std::uint64_t>(static_cast<std::uint64_t>(left / milliseconds(1)),
                                   protocol::kLeavesInMs);
  }

  // The platform changed its mind, or its clock is not ours.
  void stay_if_alive(Context& context) {
    if (!leaving || leaving->exits || !context.due(leaving->deadline + kLivesOn)) return;
    context.log(LogLevel::kWarning,
                text("this node still lives ", kLivesOn / seconds(1), " s after the end that \"",
                     leaving->what, "\" announced: it works again"));
    leaving.reset();
    drain_told = 0;
    drain_heard = false;
    for (Slot& slot : slots) slot.stay();
    session.heartbeat_soon();
  }

  // ---- Replies ----
  void on_error(std::uint64_t id, const pb::Error& error, Context& context) {
    const bool is_unauthorised = error.code() == to_string(ErrorCode::kUnauthorised);
    if (session.is_hello(id)) {
      context.log(LogLevel::kError, "the coordinator refuses this node: " + error.message());
      if (is_unauthorised) exit_code = kExitConfiguration;
      return;
    }
    if (session.is_heartbeat(id) || session.is_assignment(id)) {
      session.greet_again(context, kGreetAgain);
      return;
    }
    for (Slot& slot : slots) {
      if (slot.is_commit(id)) return slot.on_commit_error(error, context);
    }
    const bool may_retry = error.code() == to_string(ErrorCode::kUnavailable) ||
                           error.code() == to_string(ErrorCode::kConflict);
    session.answered_post(id, may_retry, context);
  }

  void on_hello(std::uint64_t id, const pb::HelloReply& reply, Context& context) {
    if (!session.is_hello(id)) return;
    if (reply.generation() < generation) {
      context.log(LogLevel::kError,
                  text("refused: the coordinator's epochs are of generation ", reply.generation(),
                       ", this node has seen ", generation,
                       "; was an old backup put back without `skerry-coordinator restore`?"));
      session.refuse(context);
      return;
    }
    session.accepted(reply, context);
    raise_generation(reply.generation(), context);
    context.log(LogLevel::kInfo, text("connected as ", reply.name(), " (", reply.node_id(), ")"));
  }

  void raise_generation(std::uint64_t to, Context& context) {
    if (to <= generation) return;
    if (generation != 0) outlive_restore(context);
    generation = to;
    generation_ticket = last_ticket + 1;  // the write that this step ends with
    context.dirty = true;
  }

  // The coordinator was restored. What its assignments omit from here on may be
  // the last copy of what it merely does not know.
  void outlive_restore(Context& context) {
    static_assert(protocol::kReplicas + kKeptMost + 3 * protocol::kSlots <= kOutlivedMost);
    answered = false;
    std::set<Hash> all(outlived.begin(), outlived.end());
    for (const Hash& hash : objects.checkpoints_on_disk()) all.insert(hash);
    outlived.assign(all.begin(), all.end());
    while (outlived.size() > kOutlivedMost)
      evict_outlived(text("more than ", kOutlivedMost, " checkpoints outlived restores"), context);
  }

  // The coordinator knows an expert again where it names one of these, or a
  // later checkpoint that is durable here.
  void release_outlived(Context& context) {
    if (!answered || outlived.empty()) return;
    std::set<Hash> named;
    for (const pb::Replica& replica : replicas) named.insert(name_of(replica.object()));
    for (const Slot& slot : slots) {
      if (slot.work() && is_set(slot.work()->head)) named.insert(name_of(slot.work()->head));
    }
    std::map<ExpertId, Step> reached;
    for (const Hash& hash : named) {
      const CheckpointFacts* const facts = objects.facts_of(hash);
      if (facts == nullptr || !objects.is_stored(hash)) continue;
      Step& step = reached[facts->expert];
      step = std::max(step, facts->step);
    }
    const auto gone = std::erase_if(outlived, [&](const Hash& hash) {
      const CheckpointFacts* const facts = objects.facts_of(hash);
      if (named.contains(hash)) return true;
      return facts != nullptr && reached.contains(facts->expert) &&
             reached[facts->expert] > facts->step;
    });
    if (gone > 0) context.dirty = true;
  }

  bool is_run_assigned(const RunId& run) const {
    return std::ranges::any_of(replicas,
                               [&](const pb::Replica& each) { return each.run() == run.str(); }) ||
           std::ranges::any_of(slots, [&](const Slot& slot) {
             return slot.work() && slot.work()->expert().run == run;
           });
  }

  // Evicts the least valuable one, in this order:
  //   - its expert is unknown
  //   - a later checkpoint of its expert is here
  //   - the coordinator assigns its run
  //   - it has the fewest steps
  // REQUIRES: there is one.
  void evict_outlived(const std::string& why, Context& context) {
    std::map<ExpertId, Step> latest;
    for (const Hash& hash : outlived) {
      const CheckpointFacts* const facts = objects.facts_of(hash);
      if (facts != nullptr) latest[facts->expert] = std::max(latest[facts->expert], facts->step);
    }
    const auto worth = [&](const Hash& hash) {
      const CheckpointFacts* const facts = objects.facts_of(hash);
      if (facts == nullptr) return std::tuple(false, false, false, Step{0});
      return std::tuple(true, facts->step == latest.at(facts->expert),
                        !is_run_assigned(facts->expert.run), facts->step);
    };
    const auto least = std::ranges::min_element(outlived, {}, worth);
    const Hash gone = *least;
    const CheckpointFacts* const facts = objects.facts_of(gone);
    const std::string what =
        facts == nullptr ? text("checkpoint ", gone.short_hex())
                         : text("the checkpoint of step ", facts->step, " of ", facts->expert);
    context.log(LogLevel::kWarning,
                text(why, ": ", what,
                     ", which was here when the coordinator was restored, is not kept "
                     "any longer; it may be the last copy"));
    outlived.erase(least);
    forget_kept([&](const KeptCheckpoint& each) { return name_of(each.object) == gone; }, context);
    context.dirty = true;
  }

  void on_heartbeat(std::uint64_t id, const pb::HeartbeatReply& reply, Context& context) {
    const std::optional<Duration> until = session.heartbeat_answered(id, reply, context);
    if (!until) return;
    if (drain_told != 0 && id >= drain_told) drain_heard = true;
    if (reply.may_stop() && !has_work() && !leaving) idle.may_stop(context);
    for (const pb::RenewedLease& lease : reply.renewed()) {
      for (Slot& slot : slots) slot.renewed(lease, *until);
    }
    if (reply.log_request() == 0) return;
    if (reply.log_request() == log_asked && context.now.boot < log_asked_at + kLogRetry) return;
    log_asked = reply.log_request();
    log_asked_at = context.now.boot;
    context.out.collect_log = log_asked;
  }

  void on_assignment(std::uint64_t id, const pb::Assignment& assignment, Context& context) {
    if (!session.is_assignment(id)) return;
    for (const pb::SlotAssignment& slot : assignment.slots()) {
      if (Epoch(slot.epoch()).generation() < generation) {
        context.log(LogLevel::kError, text("refused: an assignment with epoch ",
                                           Epoch(slot.epoch()), " of an old generation"));
        session.greet_again(context, kGreetAgain);
        return;
      }
    }
    if (!session.assignment_answered(assignment.version())) return;
    replicas.assign(assignment.replicas().begin(), assignment.replicas().end());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const pb::SlotAssignment* next = nullptr;
      for (const pb::SlotAssignment& slot : assignment.slots()) {
        if (slot.slot() == config.slots[i].index()) next = &slot;
      }
      slots[i].assign(next, leaving.has_value(), context);
    }
    for (const pb::SlotAssignment& slot : assignment.slots()) {
      raise_generation(Epoch(slot.epoch()).generation(), context);
    }
    answered = true;
  }

  void on_commit(std::uint64_t id, const pb::CommitReply& reply, Context& context) {
    for (Slot& slot : slots) {
      if (slot.is_commit(id)) return slot.on_commit(reply, context);
    }
  }

  void forget_commit_ids() {
    for (Slot& slot : slots) slot.connection_lost();
  }

  // ---- Checkpoints that are kept ----
  bool is_worked_on(const ExpertId& expert) const {
    return std::ranges::any_of(
        slots, [&](const Slot& slot) { return slot.work() && slot.work()->expert() == expert; });
  }
  void forget_kept(const std::function<bool(const KeptCheckpoint&)>& which, Context& context) {
    const auto gone = std::erase_if(kept, [&](const KeptCheckpoint& each) {
      return which(each) && !is_worked_on(each.expert);
    });
    if (gone > 0) context.dirty = true;
  }
  // One goes for each word of a full disk. First the heads that the coordinator
  // knows, the oldest first: its disk has them too.
  void make_room(Context& context) {
    const auto oldest = std::ranges::find_if(kept, [&](const KeptCheckpoint& each) {
      return !is_worked_on(each.expert) &&
             std::ranges::find(outlived, name_of(each.object)) == outlived.end();
    });
    if (oldest == kept.end()) {
      if (!outlived.empty()) evict_outlived("the disk is full", context);
      return;
    }
    context.log(LogLevel::kWarning, text("the disk is full: the checkpoint of step ", oldest->step,
                                         " of ", oldest->expert, " is not kept any longer"));
    kept.erase(oldest);
    context.dirty = true;
  }
  void keep_heads(Context& context) {
    for (const Slot& slot : slots) {
      if (!slot.work() || !is_set(slot.work()->head) ||
          !objects.is_stored(name_of(slot.work()->head)))
        continue;
      const Work& work = *slot.work();
      const auto same = std::ranges::find(kept, work.expert(), &KeptCheckpoint::expert);
      if (same != kept.end() && same->object.manifest() == work.head.manifest()) continue;
      if (same != kept.end()) kept.erase(same);
      kept.push_back({work.expert(), work.epoch(), work.head_step, work.head, work.head_loss});
      if (kept.size() > kKeptMost) kept.erase(kept.begin());
      context.dirty = true;
    }
    for (const KeptCheckpoint& each : kept) objects.keep(each.object);
    for (const Hash& hash : outlived) {
      pb::ObjectRef object;
      object.set_manifest(hash.raw());
      objects.keep(object);
    }
    for (const pb::Replica& replica : replicas) {
      // A commit may wait for the checkpoint.
      if (!objects.need(replica.object(), ObjectKind::kCheckpoint, context)) continue;
      for (const pb::ObjectRef& shard : replica.shards())
        objects.need(shard, ObjectKind::kShard, context);
    }
    for (const pb::ObjectRef& file : files) objects.need(file, ObjectKind::kShard, context);
  }

  bool has_work() const { return !std::ranges::all_of(slots, &Slot::is_clear); }

  // ---- What is due ----
  void advance(Context& context) {
    objects.begin_step();
    stay_if_alive(context);
    for (Slot& slot : slots) slot.advance(context);
    release_outlived(context);
    keep_heads(context);
    objects.end_step(answered, context);
    if (idle.advance(has_work(), leaving.has_value(), context)) session.heartbeat_soon();
    speak(context);
    if (leaving && leaving->exits) finish_drain(context);
    if (leave_now) exit_code = kExitDone;
  }

  bool is_durable(const pb::Replica& replica) const {
    return objects.is_stored(name_of(replica.object()));
  }

  // Somebody's commit may wait for one of them.
  bool has_durable_to_tell() const {
    return std::ranges::any_of(replicas, [&](const pb::Replica& replica) {
      return !durable_told.contains(replica.object().manifest()) && is_durable(replica);
    });
  }

  void add_replicas(pb::Heartbeat& heartbeat) {
    durable_told.clear();
    for (const pb::Replica& replica : replicas) {
      pb::ReplicaStatus& status = *heartbeat.add_replicas();
      status.set_manifest(replica.object().manifest());
      status.set_durable(is_durable(replica));
      status.set_bytes(status.durable() ? replica.object().bytes()
                                        : objects.progress_of(name_of(replica.object())).bytes);
      if (status.durable()) durable_told.insert(status.manifest());
      const auto is_here = [&](const auto& shard) { return objects.is_stored(name_of(shard)); };
      status.set_has_shards(replica.shards_size() > 0 &&
                            std::ranges::all_of(replica.shards(), is_here));
    }
  }

  void add_notice(pb::Heartbeat& heartbeat, const Context& context) const {
    heartbeat.set_draining(leaving.has_value());
    if (leaving) heartbeat.set_leaves_in_ms(milliseconds_left(context));
    heartbeat.set_no_new_work(!advice.empty());
    const std::string& others = advice.empty() ? idle.words() : advice;
    heartbeat.set_notice(clean_text(leaving ? leaving->what : others, protocol::kNoticeBytes));
    heartbeat.set_idle(idle.asks());
  }

  void beat_if_due(Context& context) {
    if (!session.heartbeat_due(context)) return;
    pb::ControlRequest request = session.heartbeat(context);
    add_notice(*request.mutable_heartbeat(), context);
    if (leaving && drain_told == 0) drain_told = request.id();
    for (const Slot& slot : slots) *request.mutable_heartbeat()->add_slots() = slot.status();
    add_replicas(*request.mutable_heartbeat());
    move_front(transfers, *request.mutable_heartbeat()->mutable_transfers(), protocol::kTransfers);
    move_front(faults, *request.mutable_heartbeat()->mutable_faults(), protocol::kPeerFaults);
    context.out.sends.push_back(std::move(request));
  }

  void speak(Context& context) {
    if (has_durable_to_tell()) session.heartbeat_soon();
    beat_if_due(context);
    if (session.hello_due(context)) say_hello(context);
    const bool is_generation_durable = persisted_ticket >= generation_ticket;
    if (is_generation_durable && session.assignment_due(context)) {
      pb::ControlRequest request;
      request.set_id(session.next_id());
      request.mutable_get_assignment()->set_have_version(session.applied_version());
      session.assignment_sent(request.id(), context);
      context.out.sends.push_back(std::move(request));
    }
    session.send_posts(context);
  }

  void say_hello(Context& context) {
    pb::ControlRequest request;
    request.set_id(session.next_id());
    auto& hello = *request.mutable_hello();
    hello.mutable_version()->set_major(protocol::kVersionMajor);
    hello.mutable_version()->set_minor(protocol::kVersionMinor);
    hello.set_software(config.software);
    hello.set_incarnation(config.incarnation);
    hello.set_host_label(config.host_label);
    hello.set_generation(generation);
    hello.set_price(config.price);
    hello.set_stopping(idle.is_stopping());
    for (const pb::Slot& slot : config.slots) *hello.add_slots() = slot;
    for (const Slot& slot : slots) {
      if (slot.work()) *hello.add_held() = slot.held();
    }
    session.hello_sent(request.id(), context);
    context.out.sends.push_back(std::move(request));
  }

  // The coordinator counts a node as lost if it leaves unannounced.
  bool has_left() const {
    return leaving && !session.has_posts() && (drain_heard || !session.is_open()) &&
           std::ranges::all_of(slots, &Slot::is_clear);
  }

  void finish_drain(Context& context) {
    if (has_left()) {
      context.log(LogLevel::kInfo, "drained");
      exit_code = kExitDone;
    } else if (context.due(leaving->until)) {
      context.log(LogLevel::kWarning,
                  "leaving before the drain was done: its time is up; what is stored is offered at "
                  "the next start");
      exit_code = kExitRetry;
    }
  }

  std::string saved() const {
    pb::DaemonState state;
    state.set_format(kStateFormat);
    state.set_generation(generation);
    for (const Slot& slot : slots) {
      if (slot.work()) *state.add_slots() = save(*slot.work());
    }
    for (const KeptCheckpoint& each : kept) {
      pb::SavedKept& saved = *state.add_kept();
      saved.set_run(each.expert.run.str());
      saved.set_expert(each.expert.index);
      saved.set_epoch(each.epoch.value());
      saved.set_step(each.step);
      *saved.mutable_object() = each.object;
      saved.set_loss(each.loss);
    }
    for (const Hash& hash : outlived) state.add_outlived(hash.raw());
    return state.SerializeAsString();
  }
};

Result<Core> Core::make(CoreConfig config, Recovered recovered) {
  SKERRY_CHECK(config.incarnation != 0, "an incarnation is drawn by the host");
  pb::DaemonState state;
  if (!recovered.state.empty()) {
    if (!state.ParseFromString(recovered.state)) {
      return fail(ErrorCode::kCorrupt, "the daemon's saved state cannot be read");
    }
    if (state.format() != kStateFormat) {
      return fail(ErrorCode::kCorrupt,
                  text("the daemon's saved state is of format ", state.format(), ", expected ",
                       kStateFormat, "; it was written by another version"));
    }
  }
  const std::map<Hash, ObjectKind>& found = recovered.objects;
  auto impl = std::make_unique<Impl>(std::move(config), recovered);
  impl->generation = state.generation();
  for (const pb::SavedKept& saved : state.kept()) {
    ASSIGN_OR_RETURN(const Hash name, Hash::from_raw(saved.object().manifest()));
    // Found damaged, it is nobody's to keep: it is fetched again where it is
    // needed.
    if (!found.contains(name) || recovered.partial.contains(name)) continue;
    impl->kept.push_back({expert_of(saved.run(), saved.expert()), Epoch(saved.epoch()),
                          saved.step(), saved.object(), saved.loss()});
  }
  for (const std::string& raw : state.outlived()) {
    ASSIGN_OR_RETURN(const Hash name, Hash::from_raw(raw));
    if (found.contains(name) && !recovered.partial.contains(name)) impl->outlived.push_back(name);
  }
  for (const pb::SavedSlot& slot : state.slots()) {
    TRY(check_saved(slot));
    impl->restored.emplace_back(slot.assignment().slot(), load(slot));
  }
  return Core(std::move(impl));
}

Core::Core(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;
Core::~Core() = default;

Effects Core::step(const Event& event, Now now) {
  Effects out;
  Context context{out, now};
  Impl& core = *impl_;
  if (!core.last_step) {
    for (auto& [index, work] : std::exchange(core.restored, {})) {
      if (Slot* slot = core.slot_at(index); slot != nullptr)
        slot->restore(std::move(work), now.boot);
    }
  } else if (const Duration stalled = now.boot - *core.last_step; stalled > kStallExcused) {
    for (Slot& slot : core.slots) slot.excuse(stalled);
  }
  core.last_step = now.boot;
  std::visit([&](const auto& happened) { core.on(happened, context); }, event);
  core.advance(context);
  if (context.dirty) out.writes.push_back({++core.last_ticket, core.saved()});
  out.exit_code = core.exit_code;
  return out;
}

std::vector<SlotView> Core::slots() const {
  std::vector<SlotView> views;
  for (const Slot& slot : impl_->slots)
    views.push_back(slot.view(impl_->last_step.value_or(Duration{})));
  return views;
}

const std::vector<KeptCheckpoint>& Core::kept() const { return impl_->kept; }

bool Core::has_left() const { return impl_->has_left() && impl_->session.is_open(); }

std::vector<Hash> Core::urgent() const {
  std::vector<Hash> urgent;
  if (!impl_->leaving) return urgent;
  for (const Slot& slot : impl_->slots) {
    if (!slot.work()) continue;
    for (const auto& checkpoint : {slot.work()->in_flight, slot.work()->latest}) {
      if (checkpoint) urgent.push_back(name_of(checkpoint->object));
    }
  }
  return urgent;
}

bool Core::connected() const { return impl_->session.is_open(); }

}  // namespace skerry::daemon
