// SPDX-License-Identifier: Apache-2.0
// Slot: the engine's life.
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/clean_text.h"
#include "daemon/core/slot.h"

namespace skerry::daemon {
namespace {

pb::EngineRequest::RoundPlan plan_of(const pb::SlotAssignment& assignment) {
  pb::EngineRequest::RoundPlan plan;
  plan.set_round_steps(assignment.spec().round_steps());
  plan.set_round_seconds(assignment.spec().round_seconds());
  return plan;
}

bool same(const pb::EngineRequest::RoundPlan& a, const pb::EngineRequest::RoundPlan& b) {
  return a.round_steps() == b.round_steps() && a.round_seconds() == b.round_seconds();
}

double finite(double value) { return std::isfinite(value) ? value : 0; }

}  // namespace

Slot::Engine* Slot::current(std::uint64_t id) {
  if (!engine_ || engine_->id != id || engine_->abandoned || !work_) return nullptr;
  return &*engine_;
}

// ---- What the engine says ---------------------------------------------------

void Slot::on(const EngineStarting& event, Context& context) {
  Engine* engine = current(event.engine);
  if (engine == nullptr || engine->phase != EnginePhase::kStarting) return;
  engine->watch.starting(context.now.boot);
  engine->starting = event.phase;
}

void Slot::on(const EngineReady& event, Context& context) {
  Engine* engine = current(event.engine);
  if (engine == nullptr) return;
  engine->watch.heard(context.now.boot);
  engine->fingerprint = event.ready.fingerprint();
  engine->step = event.ready.step();
  if (engine->phase == EnginePhase::kStarting) engine->phase = EnginePhase::kTraining;
  if (event.ready.step() != work_->resume_step()) {
    engine->failure = pb::EngineEvent::FAILURE_BAD_INPUT;
    engine->failure_reason =
        text("the engine stands at step ", event.ready.step(), ", expected ", work_->resume_step());
    stop_engine(StopKind::kKill, context);
    return;
  }
  context.log(LogLevel::kInfo,
              text(label(), ": training on ", event.ready.device(), " from step ", engine->step));
}

void Slot::on(const EngineProgress& event, Context& context) {
  Engine* engine = current(event.engine);
  if (engine == nullptr) return;
  engine->watch.heard(context.now.boot);
  engine->step = std::max(engine->step, event.progress.step());
  engine->loss = finite(event.progress.loss());
  engine->samples_per_second = finite(event.progress.samples_per_second());
  engine->progressed = true;
}

void Slot::on(const EngineSnapshot& event, Context& context) {
  Engine* engine = current(event.engine);
  if (engine == nullptr || storing_) return;
  engine->watch.heard(context.now.boot);
  const auto& snapshot = event.snapshot;
  const bool is_finite = std::isfinite(snapshot.loss()) && std::isfinite(snapshot.gradient_norm());
  if (!is_finite || snapshot.to_step() <= work_->resume_step()) {
    engine->failure =
        is_finite ? pb::EngineEvent::FAILURE_INTERNAL : pb::EngineEvent::FAILURE_NON_FINITE;
    engine->failure_reason = is_finite ? text("a snapshot at step ", snapshot.to_step(),
                                              " does not go on from ", work_->resume_step())
                                       : "a snapshot with a loss that is not finite";
    stop_engine(StopKind::kKill, context);
    return;
  }
  engine->progressed = true;
  engine->step = std::max(engine->step, snapshot.to_step());
  if (!snapshot.fingerprint().empty()) engine->fingerprint = snapshot.fingerprint();
  Storing storing{.engine = event.engine, .since = context.now.boot};
  storing.checkpoint.step = snapshot.to_step();
  storing.checkpoint.fingerprint = engine->fingerprint;
  auto& metrics = storing.checkpoint.metrics;
  metrics.set_loss(snapshot.loss());
  metrics.set_gradient_norm(snapshot.gradient_norm());
  metrics.set_samples(snapshot.samples());
  metrics.set_train_seconds(snapshot.train_seconds());
  if (engine->cards.size() > 1) metrics.set_cards(static_cast<std::uint32_t>(engine->cards.size()));
  const auto& assignment = work_->assignment;
  storing.order.slot = description_.index();
  storing.order.engine = event.engine;
  storing.order.run = assignment.run();
  storing.order.expert = assignment.expert();
  storing.order.epoch = assignment.epoch();
  storing.order.attempt = assignment.attempt();
  storing.order.from_step = work_->in_flight ? work_->in_flight->step : work_->head_step;
  storing.order.step = snapshot.to_step();
  storing.order.parent = work_->parent().manifest();
  storing.order.fingerprint = engine->fingerprint;
  context.out.stores.push_back(storing.order);
  storing_ = std::move(storing);
}

void Slot::on(const SnapshotStored& event, Context& context) {
  const bool is_awaited = storing_ && storing_->engine == event.engine && work_;
  std::optional<CheckpointFacts> facts;
  if (is_awaited) facts = {work_->expert(), storing_->order.step};
  objects_.made(event.object, facts);  // kept by the next advance(), or dropped as nobody's
  if (!is_awaited) return;
  if (!storing_->reported) store_cost_ = cost_of(context.now.boot - storing_->since, event.object);
  storing_->checkpoint.object = event.object;
  work_->add(std::move(storing_->checkpoint));
  storing_.reset();
  context.dirty = true;
  if (!has_lease(context.now.boot)) ++offline_rounds_;
}

void Slot::on(const SnapshotFailed& event, Context& context) {
  if (!storing_ || storing_->engine != event.engine || !work_) return;
  if (event.error.code == ErrorCode::kExhausted) {
    if (!storing_->reported) {
      storing_->reported = true;
      report(pb::EngineEvent::FAILURE_INTERNAL,
             "the disk is full, waiting for room: " + event.error.message, {}, false);
      context.log(
          LogLevel::kError,
          text(label(), ": the disk is full, a checkpoint waits for room: ", event.error.message));
    }
    storing_->retry_at = context.now.boot + kStoreRetry;
    context.wake(storing_->retry_at);
    objects_.drop_unused_shards(context);
    return;
  }
  storing_.reset();
  if (Engine* engine = current(event.engine); engine != nullptr) {
    engine->failure = pb::EngineEvent::FAILURE_INTERNAL;
    engine->failure_reason = "its snapshot cannot be stored: " + event.error.message;
    stop_engine(StopKind::kKill, context);
  } else {
    context.log(LogLevel::kWarning, text(label(), ": last snapshot lost: ", event.error.message));
  }
}

void Slot::on(const EngineFailed& event, Context& context) {
  Engine* engine = current(event.engine);
  if (engine == nullptr) return;
  engine->watch.heard(context.now.boot);
  engine->failure = event.failed.failure();
  engine->failure_reason = event.failed.reason();
  stop_engine(StopKind::kKill, context);
}

void Slot::on(const EngineFinished& event, Context& context) {
  Engine* engine = current(event.engine);
  if (engine == nullptr) return;
  engine->watch.heard(context.now.boot);
  engine->finished = true;
  engine->step = std::max(engine->step, event.finished.step());
}

void Slot::on(const EngineExited& event, Context& context) {
  if (!engine_ || engine_->id != event.engine) return;
  const Engine engine = std::move(*engine_);
  engine_.reset();
  cards_.leave(engine.id);
  if (engine.abandoned || !work_) return;
  if (engine.failure == pb::EngineEvent::FAILURE_CARD && engine.cards.size() > 1) {
    counts_cards_ = true;
    context.out.count_cards = true;
  }
  if (event.resume_error) {
    resume_failed(*event.resume_error, context);
  } else if (engine.failure) {
    failed(*engine.failure,
           engine.failure == pb::EngineEvent::FAILURE_CARD
               ? text(card_names(engine.cards), ": ", engine.failure_reason)
               : engine.failure_reason,
           event.last_lines, context);
  } else if (engine.by_request) {
    context.log(LogLevel::kDebug, text(label(), ": the engine left as told"));
  } else if (engine.finished && engine.progressed) {
    context.log(LogLevel::kInfo, text(label(), ": the engine reached step ", engine.step));
  } else if (event.killed_for_memory) {
    failed(pb::EngineEvent::FAILURE_OUT_OF_MEMORY,
           "killed by the system, most likely for memory (" + event.how + ")", event.last_lines,
           context);
  } else {
    failed(pb::EngineEvent::FAILURE_INTERNAL, "the engine ended: " + event.how, event.last_lines,
           context);
  }
}

// ---- Failures ---------------------------------------------------------------

void Slot::report(pb::EngineEvent::Failure failure, const std::string& reason,
                  const std::vector<std::string>& lines, bool gives_up) {
  pb::ControlRequest request;
  auto& message = *request.mutable_engine_report();
  message.set_run(work_->assignment.run());
  message.set_expert(work_->assignment.expert());
  message.set_epoch(work_->assignment.epoch());
  message.set_attempt(work_->assignment.attempt());
  const bool card_fault = failure == pb::EngineEvent::FAILURE_CARD;
  message.set_failure(card_fault ? pb::EngineEvent::FAILURE_INTERNAL : failure);
  message.set_card_fault(card_fault);
  message.set_reason(clean_text(reason, protocol::kReasonBytes));
  const std::size_t first = lines.size() > kReportLines ? lines.size() - kReportLines : 0;
  for (std::size_t i = first; i < lines.size(); ++i)
    message.add_last_lines(clean_text(lines[i], protocol::kLogLineBytes));
  message.set_gives_up(gives_up);
  session_.post(std::move(request));
}

std::string Slot::card_names(const SlotIndices& cards) const {
  std::string names =
      text(description_.device(), cards.size() > 1 ? " of one of the slots " : " of slot ");
  for (std::size_t i = 0; i < cards.size(); ++i) names += text(i > 0 ? ", " : "", cards[i]);
  return names;
}

void Slot::failed(pb::EngineEvent::Failure failure, const std::string& reason,
                  const std::vector<std::string>& lines, Context& context) {
  context.log(LogLevel::kError, text(label(), ": ", reason));
  if (failure == pb::EngineEvent::FAILURE_NON_FINITE) {
    // What was not sent yet may carry the seed of it; the next attempt starts
    // at the head.
    work_->latest.reset();
    storing_.reset();
    context.dirty = true;
    block_ = Block::kNonFinite;
    report(failure, reason, lines, false);
    return;
  }
  budget_.failed(context.now.boot);
  const bool gives_up = budget_.is_used_up();
  report(failure, reason, lines, gives_up);
  if (gives_up) block_ = Block::kGivenUp;
  start_after_ = context.now.boot + budget_.wait();
  if (failure == pb::EngineEvent::FAILURE_BAD_INPUT) {
    for (const auto& shard : work_->assignment.shards()) objects_.distrust(name_of(shard));
  }
}

// A checkpoint of our own that was not accepted is nowhere else: if the disk
// lost it, it is lost.
void Slot::object_failed(const Hash& manifest, const Error& error, Context& context) {
  if (!work_ || error.code == ErrorCode::kExhausted) return;
  const auto is_it = [&](const std::optional<Checkpoint>& checkpoint) {
    return checkpoint && name_of(checkpoint->object) == manifest;
  };
  if (is_it(work_->latest)) {
    work_->latest.reset();
  } else if (is_it(work_->in_flight)) {
    forget_uncommitted();  // what follows it names it as its parent
  } else {
    return;
  }
  context.dirty = true;
  context.log(
      LogLevel::kWarning,
      text(label(), ": a stored checkpoint is lost; going on from step ", work_->resume_step()));
}

void Slot::resume_failed(const Error& error, Context& context) {
  if (error.code == ErrorCode::kExhausted || error.code == ErrorCode::kUnavailable) {
    context.log(LogLevel::kWarning,
                text(label(), ": cannot start the engine now: ", error.message));
    start_after_ = context.now.boot + kStoreRetry;
    return;
  }
  if (work_->latest) {
    work_->latest.reset();
    context.dirty = true;
  } else if (work_->in_flight) {
    forget_uncommitted();
    context.dirty = true;
  } else if (is_set(work_->head)) {
    objects_.distrust(name_of(work_->head));
  }
  failed(pb::EngineEvent::FAILURE_BAD_INPUT, "cannot resume: " + error.message, {}, context);
}

// ---- What is done about it --------------------------------------------------

bool Slot::is_over_offline_limit(Context& context) const {
  if (has_lease(context.now.boot)) return false;
  return offline_rounds_ >= std::max<std::uint32_t>(1, work_->assignment.spec().offline_rounds());
}

bool Slot::should_train(Context& context) const {
  return leaving_ == Leaving::kNo && block_ == Block::kNone && !storing_ && !counts_cards_ &&
         work_->resume_step() < work_->assignment.steps_target() && !is_over_offline_limit(context);
}

// The slots whose cards its engine is to train on: those of its lease that are
// not lost, and share the batch evenly.
SlotIndices Slot::cards() const {
  SlotIndices cards = {description_.index()};
  const auto& more = work_->assignment.more_slots();
  cards.insert(cards.end(), more.begin(), more.end());
  std::erase_if(cards, [&](std::uint32_t slot) { return !cards_.is_usable(slot); });
  const std::uint32_t batch = std::max(1U, work_->assignment.spec().train().batch_size());
  while (cards.size() > 1 && batch % cards.size() != 0) cards.pop_back();
  return cards;
}

// A slot that another engine still leaves is waited for while this one trains.
bool Slot::wants_other_cards() const {
  const SlotIndices wanted = cards();
  return !wanted.empty() && wanted != engine_->cards && cards_.are_free(wanted, engine_->id);
}

void Slot::give_up_card(Context& context) {
  const std::string reason = text(
      card_names({description_.index()}),
      ": it is lost; check it with nvidia-smi, and restart the machine if it is missing there");
  context.log(LogLevel::kError, text(label(), ": ", reason));
  report(pb::EngineEvent::FAILURE_CARD, reason, {}, true);
  block_ = Block::kGivenUp;
}

void Slot::start_engine(Context& context) {
  const SlotIndices cards = this->cards();
  if (cards.empty()) return give_up_card(context);
  bool ready = true;
  for (const auto& shard : work_->assignment.shards())
    ready &= objects_.need(shard, ObjectKind::kShard, context);
  if (is_set(work_->resume()))
    ready &= objects_.need(work_->resume(), ObjectKind::kCheckpoint, context);
  if (!ready || !context.due(start_after_) || !cards_.are_free(cards)) return;
  Engine engine{.id = ++last_engine_};
  engine.cards = cards;
  cards_.take(engine.id, cards);
  engine.step = work_->resume_step();
  engine.steps_target = work_->assignment.steps_target();
  engine.plan = plan_of(work_->assignment);
  StartEngine order{.slot = description_.index(), .engine = engine.id, .cards = cards};
  if (cards.size() > 1) order.start.set_cards(static_cast<std::uint32_t>(cards.size()));
  *order.start.mutable_model() = work_->assignment.model();
  *order.start.mutable_train() = work_->assignment.spec().train();
  order.start.mutable_train()->set_steps(work_->assignment.steps_target());
  order.start.set_expert(work_->assignment.expert());
  order.start.set_attempt(work_->assignment.attempt());
  *order.start.mutable_shard_partitions() = work_->assignment.partitions();
  *order.start.mutable_plan() = engine.plan;
  order.shards.assign(work_->assignment.shards().begin(), work_->assignment.shards().end());
  order.resume = work_->resume();
  context.out.starts.push_back(std::move(order));
  engine_ = std::move(engine);
}

void Slot::stop_engine(StopKind kind, Context& context) {
  if (kind == StopKind::kKill && engine_->phase != EnginePhase::kKilled)
    engine_->killed_at = context.now.boot;
  engine_->phase = kind == StopKind::kKill ? EnginePhase::kKilled : EnginePhase::kStopping;
  engine_->kill_again = context.now.boot + kKillRetry;
  context.out.stops.push_back({description_.index(), engine_->id, kind});
}

void Slot::abandon_engine(Context& context) {
  if (!engine_ || engine_->abandoned) return;
  engine_->abandoned = true;
  stop_engine(StopKind::kKill, context);
}

// The seconds to store and commit what was not sent, at the measured rates. A
// checkpoint is as large as the last one. None: a rate or the size is unknown.
std::optional<double> Slot::needs_unsent(Duration now) const {
  const double bytes = static_cast<double>(work_->resume().bytes());
  if (bytes == 0 || !store_cost_ || !commit_cost_) return std::nullopt;
  const auto seconds_since = [now](Duration time) {
    return std::chrono::duration<double>(now - time).count();
  };
  double needed = bytes * *commit_cost_;
  if (storing_) needed += std::max(bytes * *store_cost_ - seconds_since(storing_->since), 0.0);
  if (work_->in_flight) {
    const double whole = static_cast<double>(work_->in_flight->object.bytes()) * *commit_cost_;
    needed += std::max(whole - (commit_since_ ? seconds_since(*commit_since_) : 0), 0.0);
  }
  return needed;
}

// Whether a snapshot that is taken now can be committed before the node leaves,
// behind what is being stored and sent. An unknown one is tried.
bool Slot::fits_last_snapshot(Duration now) const {
  const std::optional<double> needed = needs_unsent(now);
  if (!needed) return true;
  const double store = static_cast<double>(work_->resume().bytes()) * *store_cost_;
  return store + *needed <= std::chrono::duration<double>(drain_until_ - now).count();
}

// Whether a leaving node returns its lease with steps that it cannot commit in
// time. The commit in flight is waited for.
bool Slot::gives_up_unsent(Duration now) const {
  const bool trains_on = engine_ && engine_->phase == EnginePhase::kTraining && !engine_->finished;
  if (leaving_ != Leaving::kDrain || !trains_on || work_->in_flight) return false;
  if (!session_.is_open()) return false;  // nobody would take the lease
  if (!work_->latest && !storing_) return true;
  const std::optional<double> needed = needs_unsent(now);
  return needed && *needed > std::chrono::duration<double>(drain_until_ - now).count();
}

// Whether the engine is to take a snapshot and end. A leaving node without the
// time for one has it train on.
bool Slot::wants_end(Context& context) const {
  if (block_ != Block::kNone || is_over_offline_limit(context)) return true;
  if (leaving_ == Leaving::kDrain)
    return engine_->phase != EnginePhase::kTraining || fits_last_snapshot(context.now.boot);
  return leaving_ != Leaving::kNo;
}

// An engine that runs: hung, unwanted, or told of a new plan.
void Slot::steer_engine(Context& context) {
  Engine& engine = *engine_;
  if (engine.phase == EnginePhase::kKilled) {
    if (context.due(engine.kill_again)) stop_engine(StopKind::kKill, context);
    context.wake(engine.kill_again);
    if (!context.due(engine.killed_at + kStuckAfter)) context.wake(engine.killed_at + kStuckAfter);
    return;
  }
  if (storing_ && storing_->engine == engine.id)
    engine.watch.hold(context.now.boot);  // it may wait for its memory
  if (context.due(engine.watch.limit())) {
    engine.failure = pb::EngineEvent::FAILURE_INTERNAL;
    engine.failure_reason =
        engine.phase == EnginePhase::kStarting
            ? text("the engine hung while it started: no word since \"", engine.starting, '"')
            : text("the engine hung: no word from it since step ", engine.step);
    stop_engine(StopKind::kKill, context);
    context.wake(engine.kill_again);
    return;
  }
  if (engine.phase == EnginePhase::kStopping || engine.finished) return;
  const bool has_other_target = engine.steps_target != work_->assignment.steps_target();
  if (wants_end(context) || has_other_target || wants_other_cards()) {
    engine.by_request = true;
    // Before Ready it has nothing that a snapshot could save.
    const bool keeps = engine.phase == EnginePhase::kTraining;
    stop_engine(keeps ? StopKind::kSnapshotNow : StopKind::kKill, context);
    return;
  }
  if (const auto plan = plan_of(work_->assignment); !same(plan, engine.plan)) {
    engine.plan = plan;
    context.out.plans.push_back({description_.index(), engine.id, plan});
  }
}

bool Slot::has_stuck_engine(Context& context) const {
  return engine_ && engine_->phase == EnginePhase::kKilled &&
         context.due(engine_->killed_at + kStuckAfter);
}

// The driver holds its process, and the slot with it. The expert goes to
// another node.
void Slot::give_up_stuck(Context& context) {
  cards_.stuck(engine_->id, description_.index());
  const std::string reason =
      text(card_names(engine_->cards), ": its engine does not end ", kStuckAfter / seconds(1),
           " s after SIGKILL; look for Xid in dmesg, and restart the machine or rent another");
  context.log(LogLevel::kError, text(label(), ": ", reason));
  report(pb::EngineEvent::FAILURE_CARD, reason, {}, true);
  block_ = Block::kGivenUp;
}

void Slot::advance(Context& context) {
  for (const pb::ObjectRef& object : left_) objects_.keep(object);
  if (work_) {
    objects_.keep(work_->head);
    if (work_->in_flight) objects_.keep(work_->in_flight->object);
    if (work_->latest) objects_.keep(work_->latest->object);
  }
  for (int i = 0; work_ && i < work_->assignment.shards_size(); ++i)
    objects_.keep(work_->assignment.shards(i));
  if (storing_ && context.due(storing_->retry_at)) {
    storing_->retry_at = kNever;
    context.out.stores.push_back(storing_->order);
  }
  if (engine_) {
    steer_engine(context);
  } else if (work_ && should_train(context)) {
    start_engine(context);
  }
  if (work_ && gives_up_unsent(context.now.boot))
    return give_back("no time for a last snapshot", context);
  commit_if_due(context);
  const bool is_stuck = has_stuck_engine(context);
  if (work_ && is_stuck && block_ != Block::kGivenUp) give_up_stuck(context);
  if (!work_ || (engine_ && !is_stuck) || storing_ || work_->has_uncommitted()) return;
  if (block_ == Block::kGivenUp) {
    give_back("cannot train", context);
  } else if (leaving_ != Leaving::kNo) {
    give_back(leaving_ == Leaving::kDrain ? "drain" : "turn over", context);
  }
}

}  // namespace skerry::daemon
