// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/supervisor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "protocol/validate_engine.h"

namespace skerry::daemon {

Supervisor::~Supervisor() {
  for (auto& [id, engine] : engines_) engine.process.kill();
  const SystemClock clock;
  const Duration until = clock.now().boot + end_limit_;
  for (auto& [id, engine] : engines_) {
    const pid_t pid = engine.process.pid();
    if (engine.process.end(std::max(Duration{}, until - clock.now().boot))) continue;
    log_error(
        "an engine does not end: its driver holds it, and its card; look for Xid in dmesg, restart "
        "the "
        "machine",
        {{"slot", engine.slot}, {"pid", pid}});
  }
}

void Supervisor::start_with(const StartEngine& order, pb::EngineRequest::Start start, int resume,
                            const std::string& card) {
  Result<EngineProcess> process = EngineProcess::spawn(command_, card);
  if (!process) {
    events_.push_back(
        EngineExited{.slot = order.slot, .engine = order.engine, .how = process.error().message});
    return;
  }
  const auto at = engines_.try_emplace(order.engine, Engine{order.slot, std::move(*process)}).first;
  log_debug("engine started", {{"slot", order.slot}, {"pid", at->second.process.pid()}});
  events_.push_back(EngineStarting{order.slot, order.engine, "loading the program"});
  pb::EngineRequest request;
  *request.mutable_start() = std::move(start);
  say(order.engine, request, resume);
}

void Supervisor::say(std::uint64_t id, const pb::EngineRequest& request, int descriptor) {
  const auto at = engines_.find(id);
  if (at == engines_.end()) return;
  const Result<void> sent = at->second.process.channel().send(request, descriptor);
  // One that has gone says so by its end.
  if (!sent && sent.error().code != ErrorCode::kUnavailable)
    broke_rules(id, at->second, sent.error().message);
}

void Supervisor::stop(const StopEngine& order) {
  const auto at = engines_.find(order.engine);
  if (at == engines_.end()) return;
  if (order.kind == StopKind::kKill) {
    at->second.process.kill();
    return;
  }
  pb::EngineRequest request;
  request.mutable_stop()->set_snapshot_now(order.kind == StopKind::kSnapshotNow);
  request.mutable_stop()->set_finish_round(order.kind == StopKind::kFinishRound);
  say(order.engine, request);
}

void Supervisor::plan(const PlanRound& order) {
  pb::EngineRequest request;
  *request.mutable_plan() = order.plan;
  say(order.engine, request);
}

pid_t Supervisor::process_id(std::uint64_t engine) const {
  return engines_.at(engine).process.pid();
}

std::shared_ptr<const Snapshot> Supervisor::snapshot(std::uint64_t engine) const {
  const auto at = snapshots_.find(engine);
  return at == snapshots_.end() ? nullptr : at->second;
}

void Supervisor::release_snapshot(std::uint64_t engine) {
  if (engines_.contains(engine)) {
    pb::EngineRequest request;
    request.mutable_snapshot_done();
    say(engine, request);
  } else {
    snapshots_.erase(engine);
  }
}

std::vector<int> Supervisor::descriptors() const {
  std::vector<int> all;
  for (const auto& [id, engine] : engines_) {
    if (!engine.ended) all.push_back(const_cast<EngineProcess&>(engine.process).channel().fd());
    if (engine.process.output_fd() >= 0) all.push_back(engine.process.output_fd());
  }
  return all;
}

void Supervisor::pump() {
  for (auto& [id, engine] : engines_) {
    if (engine.process.channel().wants_write()) (void)engine.process.channel().flush();
    pump_output(engine);
    pump_channel(id, engine);
  }
}

void Supervisor::pump_output(Engine& engine) {
  for (std::string& line : engine.process.read_output()) {
    lines_.push_back(text("engine ", engine.slot, ": ", line));
  }
}

void Supervisor::pump_channel(std::uint64_t id, Engine& engine) {
  while (!engine.ended) {
    auto frames = engine.process.channel().receive();
    if (!frames) {
      engine.ended = true;
      if (frames.error().code != ErrorCode::kUnavailable)
        broke_rules(id, engine, frames.error().message);
      return;
    }
    if (frames->empty()) return;
    for (auto& frame : *frames) take_frame(id, engine, std::move(frame));
  }
}

void Supervisor::take_frame(std::uint64_t id, Engine& engine, protocol::Channel::Frame frame) {
  const Result<pb::EngineEvent> event = protocol::parse_engine_event(frame.bytes);
  if (!event) return broke_rules(id, engine, event.error().message);
  switch (event->body_case()) {
    case pb::EngineEvent::kStarting:
      events_.push_back(EngineStarting{engine.slot, id, event->starting().phase()});
      return;
    case pb::EngineEvent::kReady:
      events_.push_back(EngineReady{engine.slot, id, event->ready()});
      return;
    case pb::EngineEvent::kProgress:
      events_.push_back(EngineProgress{engine.slot, id, event->progress()});
      return;
    case pb::EngineEvent::kSnapshot:
      return took_snapshot(id, engine, event->snapshot(), std::move(frame.descriptor));
    case pb::EngineEvent::kFailed:
      events_.push_back(EngineFailed{engine.slot, id, event->failed()});
      return;
    case pb::EngineEvent::kFinished:
      events_.push_back(EngineFinished{engine.slot, id, event->finished()});
      return;
    default:
      return broke_rules(id, engine, "an event of an unknown kind");
  }
}

void Supervisor::took_snapshot(std::uint64_t id, Engine& engine,
                               const pb::EngineEvent::Snapshot& said, UniqueFd memory) {
  std::shared_ptr<SharedSnapshot>& snapshot = snapshots_[id];
  if (memory) {
    snapshot = std::make_shared<SharedSnapshot>();
    snapshot->memory = std::move(memory);
  }
  if (snapshot == nullptr) {
    snapshots_.erase(id);
    return broke_rules(id, engine, "a snapshot without its memory");
  }
  snapshot->bytes = said.bytes();
  events_.push_back(EngineSnapshot{engine.slot, id, said});
}

void Supervisor::broke_rules(std::uint64_t id, Engine& engine, const std::string& how) {
  EngineFailed event{.slot = engine.slot, .engine = id};
  event.failed.set_failure(pb::EngineEvent::FAILURE_INTERNAL);
  event.failed.set_reason("the engine breaks the channel's rules: " + how);
  events_.push_back(std::move(event));
  engine.process.kill();
}

bool Supervisor::reaped(pid_t pid, int status) {
  for (auto& [id, engine] : engines_) {
    if (engine.process.pid() != pid) continue;
    // All that it said stands in the socket by now: read it before its end.
    pump_channel(id, engine);
    pump_output(engine);
    engine.process.reaped(status);
    exited(id);
    return true;
  }
  return false;
}

void Supervisor::exited(std::uint64_t id) {
  const auto at = engines_.find(id);
  const EngineProcess& process = at->second.process;
  EngineExited event{.slot = at->second.slot, .engine = id, .how = process.how()};
  event.last_lines.assign(process.last_lines().begin(), process.last_lines().end());
  event.killed_for_memory = process.killed_for_memory();
  events_.push_back(std::move(event));
  engines_.erase(at);
}

}  // namespace skerry::daemon
