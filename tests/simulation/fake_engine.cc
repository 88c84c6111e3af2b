// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/fake_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry::simulation {
namespace {

constexpr Step kStepsAtOnce = 4;     // steps between two words of progress
constexpr Step kStepsUnspoken = 16;  // the same of an exact engine

double loss_at(Step step) { return 1.0 / (1.0 + static_cast<double>(step)); }

}  // namespace

FakeEngine::FakeEngine(World& world, Settings settings, Training from, Say say)
    : world_(world), settings_(std::move(settings)), training_(from), say_(std::move(say)) {
  round_start_ = offered_ = training_.step;
  later(settings_.start_time, &FakeEngine::ready);
}

FakeEngine::~FakeEngine() { *alive_ = false; }

void FakeEngine::later(Duration delay, void (FakeEngine::*action)()) {
  world_.timeline.after(delay, [this, alive = alive_, action] {
    if (*alive && !ended_ && !hangs_) (this->*action)();
  });
}

void FakeEngine::ready() {
  if (settings_.lacks_card) return lose_card();
  ready_ = true;
  daemon::EngineReady event{settings_.slot, settings_.engine, {}};
  event.ready.set_fingerprint(settings_.fingerprint);
  event.ready.set_device("simulated");
  event.ready.set_parameters(1000);
  event.ready.set_step(training_.step);
  event.ready.set_snapshot_bytes(4000);
  round_began_ = world_.timeline.now();
  later(settings_.step_time, &FakeEngine::step);
  say_(event);
}

// A few steps at once, never past the end of a round.
void FakeEngine::step() {
  const std::uint64_t planned = settings_.plan.round_steps();
  Step round_end = settings_.target;
  if (planned > 0) {
    round_end = std::min(round_end, round_start_ + planned);
  } else {
    const double left = settings_.plan.round_seconds() -
                        std::chrono::duration<double>(world_.timeline.now() - round_began_).count();
    const double steps = left / std::chrono::duration<double>(settings_.step_time).count();
    round_end = std::min(round_end, training_.step + static_cast<Step>(std::max(1.0, steps)));
  }
  Step until = snapshot_now_ ? training_.step : std::min(training_.step + kStepsAtOnce, round_end);
  if (settings_.exact) until = training_.step + 1;
  const Step trained = until - std::min(until, training_.step);
  while (training_.step < until) {
    train_step(training_);
    ++world_.steps_trained;
    if (is_non_finite(training_, world_.non_finite_one_in, world_.non_finite_steps)) {
      return fail(pb::EngineEvent::FAILURE_NON_FINITE,
                  text("weights are not finite at step ", training_.step));
    }
  }
  if (snapshot_now_ || training_.step >= round_end) return end_round();
  later(settings_.step_time * std::max<Step>(trained, 1), &FakeEngine::step);
  if (settings_.exact && stepped_ && training_.step % kStepsUnspoken != 0) return;
  daemon::EngineProgress event{settings_.slot, settings_.engine, {}};
  event.progress.set_step(training_.step);
  event.progress.set_loss(loss_at(training_.step));
  event.progress.set_samples_per_second(10);
  event.progress.set_gradient_norm(1);
  stepped_ = true;
  say_(event);
}

bool FakeEngine::offer_snapshot() {
  if (training_.step == offered_) return true;
  if (memory_held_) return false;
  snapshot_ = training_;
  memory_held_ = true;
  daemon::EngineSnapshot event{settings_.slot, settings_.engine, {}};
  event.snapshot.set_from_step(offered_);
  event.snapshot.set_to_step(training_.step);
  event.snapshot.set_bytes(4000);
  event.snapshot.set_loss(loss_at(training_.step));
  event.snapshot.set_gradient_norm(1);
  event.snapshot.set_train_seconds(
      std::chrono::duration<double>(settings_.step_time * (training_.step - offered_)).count());
  event.snapshot.set_samples(training_.step - offered_);
  offered_ = training_.step;
  stepped_ = true;
  say_(event);
  return true;
}

void FakeEngine::end_round() {
  const bool last = snapshot_now_ || finish_round_ || training_.step >= settings_.target;
  const std::weak_ptr<bool> alive = alive_;
  const bool offered = offer_snapshot();
  if (alive.expired()) return;
  if (last && !offered) {
    waits_for_memory_ = true;
    return;
  }
  if (last) return later(milliseconds(1), &FakeEngine::leave);
  round_start_ = training_.step;
  round_began_ = world_.timeline.now();
  later(settings_.step_time, &FakeEngine::step);
}

void FakeEngine::snapshot_done() {
  memory_held_ = false;
  if (waits_for_memory_) {
    waits_for_memory_ = false;
    later({}, &FakeEngine::end_round);
  }
}

void FakeEngine::leave() {
  ended_ = true;
  daemon::EngineFinished finished{settings_.slot, settings_.engine, {}};
  finished.finished.set_step(training_.step);
  finished.finished.set_complete(training_.step >= settings_.target);
  const std::weak_ptr<bool> alive = alive_;
  const Say say = say_;
  const auto [slot, engine] = std::pair(settings_.slot, settings_.engine);
  say(finished);
  if (!alive.expired()) say(daemon::EngineExited{slot, engine, "exit code 0", {}, false, {}});
}

void FakeEngine::fail(pb::EngineEvent::Failure failure, const std::string& reason) {
  ended_ = true;
  daemon::EngineFailed failed{settings_.slot, settings_.engine, {}};
  failed.failed.set_failure(failure);
  failed.failed.set_reason(reason);
  failed.failed.set_step(training_.step);
  const std::weak_ptr<bool> alive = alive_;
  const Say say = say_;
  const auto [slot, engine] = std::pair(settings_.slot, settings_.engine);
  say(failed);
  if (!alive.expired()) say(daemon::EngineExited{slot, engine, "exit code 1", {reason}, false, {}});
}

void FakeEngine::lose_card() {
  if (!ended_) fail(pb::EngineEvent::FAILURE_CARD, "a card is gone");
}

void FakeEngine::die(const std::string& how, bool for_memory) {
  if (ended_) return;
  ended_ = true;
  const Say say = say_;
  say(daemon::EngineExited{settings_.slot, settings_.engine, how, {}, for_memory, {}});
}

}  // namespace skerry::simulation
