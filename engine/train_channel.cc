// SPDX-License-Identifier: Apache-2.0
#include "engine/train_channel.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#include <cmath>
#include <csignal>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/runtime/runtime.h"
#include "diffusion/train/train.h"
#include "engine/channel_session.h"
#include "engine/exit_code.h"
#include "engine/translate.h"

namespace skerry::engine {
namespace {

using diffusion::StepMetrics;
using diffusion::Trainer;

constexpr Duration kProgressInterval = std::chrono::seconds(1);

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Means over a span of steps, of those whose metrics are known.
struct Span {
  std::uint64_t from_step = 0;
  Duration since{};
  std::uint64_t steps = 0, known = 0;
  double loss = 0, gradient_norm = 0;

  void add(const StepMetrics& metrics) {
    ++known;
    loss += (metrics.loss - loss) / static_cast<double>(known);
    gradient_norm += (metrics.gradient_norm - gradient_norm) / static_cast<double>(known);
  }
};

class Training {
 public:
  Training(ChannelSession& session, Trainer trainer, const Clock& clock)
      : session_(session), trainer_(std::move(trainer)), clock_(clock) {
    round_ = progress_ = snapshot_ = Span{.from_step = trainer_.steps_done(), .since = now()};
  }

  int run();

 private:
  enum class Next { kGoOn, kLeave, kClosed, kFailed };

  Duration now() const { return clock_.now().boot; }
  std::uint64_t target() const { return session_.start()->train().steps(); }
  std::uint64_t samples(std::uint64_t steps) const {
    return steps * session_.start()->train().batch_size();
  }
  bool send_ready();
  Next step();
  Next add(const Result<std::optional<StepMetrics>>& metrics);
  // From here on the spans know all steps that are done.
  Next settle() { return add(trainer_.settle()); }
  Next report_progress();
  bool round_ended() const;
  Next end_round();
  Next take_snapshot();
  Next wait_for_release();
  Next stop_requested();
  Next failed(pb::EngineEvent::Failure failure, const std::string& reason);
  // After Ready the input was read: later failures are not its fault.
  Next failed(const Error& error);
  int leave(Next why);

  ChannelSession& session_;
  Trainer trainer_;
  const Clock& clock_;
  Span round_, progress_, snapshot_;
  UniqueFd memory_;  // of the snapshots
  std::string told_fingerprint_;
};

bool Training::send_ready() {
  pb::EngineEvent event;
  auto& ready = *event.mutable_ready();
  told_fingerprint_ = trainer_.fingerprint();
  ready.set_fingerprint(told_fingerprint_);
  ready.set_device(trainer_.device_name());
  ready.set_parameters(trainer_.parameter_count());
  ready.set_step(trainer_.steps_done());
  ready.set_snapshot_bytes(trainer_.snapshot_bytes());
  return session_.send(event);
}

Training::Next Training::failed(pb::EngineEvent::Failure failure, const std::string& reason) {
  pb::EngineEvent event;
  auto& body = *event.mutable_failed();
  body.set_failure(failure);
  body.set_reason(reason);
  body.set_step(trainer_.steps_done());
  log_error("training failed", {{"step", trainer_.steps_done()}, {"reason", reason}});
  return session_.send(event) ? Next::kFailed : Next::kClosed;
}

Training::Next Training::failed(const Error& error) {
  const pb::EngineEvent::Failure failure = failure_of(error.code);
  return failed(
      failure == pb::EngineEvent::FAILURE_BAD_INPUT ? pb::EngineEvent::FAILURE_INTERNAL : failure,
      error.message);
}

Training::Next Training::step() {
  const Result<std::optional<StepMetrics>> before = trainer_.advance();
  for (Span* span : {&round_, &progress_, &snapshot_}) ++span->steps;
  return add(before);
}

Training::Next Training::add(const Result<std::optional<StepMetrics>>& metrics) {
  if (!metrics) return failed(metrics.error());
  if (!*metrics) return Next::kGoOn;
  if (!std::isfinite((*metrics)->loss)) {
    return failed(pb::EngineEvent::FAILURE_NON_FINITE,
                  text("the loss of step ", (*metrics)->step, " is not finite"));
  }
  for (Span* span : {&progress_, &snapshot_}) span->add(**metrics);
  return Next::kGoOn;
}

Training::Next Training::report_progress() {
  const Duration spent = now() - progress_.since;
  if (spent < kProgressInterval) return Next::kGoOn;
  if (progress_.known == 0) {  // the first step of all
    if (const Next next = settle(); next != Next::kGoOn) return next;
  }
  pb::EngineEvent event;
  auto& body = *event.mutable_progress();
  body.set_step(trainer_.steps_done());
  body.set_loss(progress_.loss);
  body.set_gradient_norm(progress_.gradient_norm);
  body.set_samples_per_second(static_cast<double>(samples(progress_.steps)) / seconds(spent));
  progress_ = Span{.from_step = trainer_.steps_done(), .since = now()};
  return session_.send(event) ? Next::kGoOn : Next::kClosed;
}

bool Training::round_ended() const {
  if (trainer_.steps_done() >= target()) return true;
  const auto& plan = session_.plan();
  if (plan.round_steps() > 0) return round_.steps >= plan.round_steps();
  return plan.round_seconds() > 0 && seconds(now() - round_.since) >= plan.round_seconds();
}

Training::Next Training::wait_for_release() {
  while (!session_.snapshot_released()) {
    if (!session_.read(/*wait=*/true)) return Next::kClosed;
    const auto& stop = session_.stop();
    if (stop && !stop->finish_round() && !stop->snapshot_now()) return Next::kLeave;
  }
  return Next::kGoOn;
}

Training::Next Training::take_snapshot() {
  if (const Next next = settle(); next != Next::kGoOn) return next;
  const Result<std::optional<std::string>> found = trainer_.non_finite();
  if (!found) return failed(found.error());
  if (*found) {
    return failed(pb::EngineEvent::FAILURE_NON_FINITE,
                  text(**found, " is not finite at step ", trainer_.steps_done()));
  }
  const bool first = !memory_;
  if (first) memory_ = UniqueFd(::memfd_create("skerry-snapshot", MFD_CLOEXEC));
  const Result<std::uint64_t> bytes = trainer_.write_snapshot(memory_.get());
  if (!bytes) return failed(bytes.error());
  pb::EngineEvent event;
  auto& body = *event.mutable_snapshot();
  body.set_from_step(snapshot_.from_step);
  body.set_to_step(trainer_.steps_done());
  body.set_bytes(*bytes);
  body.set_loss(snapshot_.loss);
  body.set_gradient_norm(snapshot_.gradient_norm);
  body.set_train_seconds(seconds(now() - snapshot_.since));
  body.set_samples(samples(snapshot_.steps));
  if (trainer_.fingerprint() != told_fingerprint_) body.set_fingerprint(trainer_.fingerprint());
  if (!session_.send(event, first ? memory_.get() : -1)) return Next::kClosed;
  session_.snapshot_sent();
  snapshot_ = Span{.from_step = trainer_.steps_done(), .since = now()};
  return Next::kGoOn;
}

// At the end, and before leaving in order, the release is waited for; elsewhere
// the span grows.
Training::Next Training::end_round() {
  round_ = Span{.from_step = trainer_.steps_done(), .since = now()};
  const bool last = trainer_.steps_done() >= target() || session_.stop();
  if (last) {
    if (const Next next = wait_for_release(); next != Next::kGoOn) return next;
  }
  if (snapshot_.steps > 0 && session_.snapshot_released()) {
    if (const Next next = take_snapshot(); next != Next::kGoOn) return next;
  }
  if (!last) return Next::kGoOn;
  const Next released = wait_for_release();
  return released == Next::kGoOn ? Next::kLeave : released;
}

Training::Next Training::stop_requested() {
  const auto& stop = session_.stop();
  if (!stop) return Next::kGoOn;
  if (stop->snapshot_now()) return end_round();
  if (!stop->finish_round()) return Next::kLeave;
  return round_.steps == 0 ? end_round()
                           : Next::kGoOn;  // the round just ended: there is nothing to finish
}

int Training::leave(Next why) {
  if (why == Next::kLeave) {
    pb::EngineEvent event;
    event.mutable_finished()->set_step(trainer_.steps_done());
    event.mutable_finished()->set_complete(trainer_.steps_done() >= target());
    if (!session_.send(event)) why = Next::kClosed;
  }
  if (why != Next::kClosed) session_.flush();
  return why == Next::kFailed ? exit_code_of(ErrorCode::kUnavailable) : kExitOk;
}

int Training::run() {
  Next next = send_ready() ? Next::kGoOn : Next::kClosed;
  if (next == Next::kGoOn && trainer_.steps_done() >= target()) next = Next::kLeave;
  while (next == Next::kGoOn) {
    if (!session_.read(/*wait=*/false)) next = Next::kClosed;
    if (next == Next::kGoOn) next = stop_requested();
    if (next == Next::kGoOn) next = step();
    if (next == Next::kGoOn) next = report_progress();
    if (next == Next::kGoOn && round_ended()) next = end_round();
  }
  return leave(next);
}

Result<Trainer> open_trainer(ChannelSession& session) {
  const pb::EngineRequest::Start& start = *session.start();
  // Never on the CPU or on fewer cards in its place: the daemon saw each of
  // them here, so one is lost.
  const int last = start.device() + static_cast<int>(std::max(1U, start.cards())) - 1;
  if (const int cards = diffusion::card_count(); start.device() >= 0 && last >= cards) {
    return fail(ErrorCode::kCard,
                text("expected CUDA device ", last, ", found ", cards,
                     " CUDA devices; check the card with nvidia-smi, and restart the machine "
                     "if it is missing there"));
  }
  const std::vector<std::string> shards(start.shard_paths().begin(), start.shard_paths().end());
  const ModelSpec model = model_of(start.model());
  const TrainSpec train = training_of(start);
  // The next read notices a daemon that is gone.
  const auto progress = [&](const char* phase) {
    pb::EngineEvent event;
    event.mutable_starting()->set_phase(phase);
    (void)session.send(event);
  };
  if (start.resume_bytes() == 0) return Trainer::create(model, train, shards, progress);
  if (session.checkpoint() < 0) {
    return fail(ErrorCode::kInvalid, "Start names a checkpoint, but no descriptor came with it");
  }
  ASSIGN_OR_RETURN(const storage::Safetensors checkpoint,
                   storage::Safetensors::map(session.checkpoint(), start.resume_bytes()));
  return Trainer::resume(model, train, shards, checkpoint, progress);
}

void send_failure(ChannelSession& session, const Error& error) {
  pb::EngineEvent event;
  event.mutable_failed()->set_failure(failure_of(error.code));
  event.mutable_failed()->set_reason(error.message);
  log_error("cannot start training", {{"reason", error.message}});
  if (session.send(event)) session.flush();
}

}  // namespace

int serve_training(protocol::Channel channel, const Clock& clock) {
  ChannelSession session(std::move(channel));
  while (!session.start()) {
    if (!session.read(/*wait=*/true)) return kExitOk;
    if (session.stop()) return kExitOk;
  }
  Result<Trainer> trainer = open_trainer(session);
  session.close_checkpoint();
  if (!trainer) {
    send_failure(session, trainer.error());
    return exit_code_of(trainer.error().code);
  }
  return Training(session, std::move(*trainer), clock).run();
}

int train_channel(int descriptor) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGPIPE, SIG_IGN);
  const SystemClock clock;
  return serve_training(protocol::Channel(UniqueFd(descriptor)), clock);
}

}  // namespace skerry::engine
