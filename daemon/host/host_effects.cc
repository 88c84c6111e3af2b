// SPDX-License-Identifier: Apache-2.0
// Host: carries out the effects of the core.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clean_text.h"
#include "base/log.h"
#include "daemon/core/objects.h"
#include "daemon/host/host.h"
#include "daemon/host/object_jobs.h"
#include "protocol/limits.h"
#include "protocol/validate_engine.h"

namespace skerry::daemon {

void Host::log(const LogEntry& entry) {
  log_line(entry.level, entry.message);
  if (entry.level != LogLevel::kDebug) remember(entry.message);
}

void Host::send(const pb::ControlRequest& request) {
  const Result<void> sent =
      parts_.transport.send(protocol::Endpoint::kControl, request.SerializeAsString());
  if (!sent) log_debug("not sent: " + sent.error().message);
}

void Host::collect_log(std::uint64_t request) {
  LogCollected collected{request, {}};
  for (const Line& line : log_ring_)
    collected.lines.push_back(
        clean_text(utc_time(line.unix_ms) + " " + line.text, protocol::kLogLineBytes));
  push(std::move(collected));
}

void Host::idle_exec(IdleExecOrder order) {
  if (order == IdleExecOrder::kStart) parts_.idle_exec->start();
  if (order == IdleExecOrder::kKill) parts_.idle_exec->kill();
}

void Host::count_cards() {
  if (parts_.cards == nullptr) return push(CardsCounted{});
  parts_.cards->worker.run([this, visible = parts_.cards->visible]() -> Done {
    Result<std::vector<std::string>> found = visible();
    return [this, found = std::move(found)] {
      CardsCounted counted;
      if (!found) log_warning("cannot count the cards: " + found.error().message);
      for (const DeviceSlot& slot : options_.slots) {
        if (found && !slot.card.empty() && std::ranges::find(*found, slot.card) == found->end())
          counted.lost.push_back(slot.description.index());
      }
      push(std::move(counted));
    };
  });
}

// A store that failed stays failed until the process starts again; a full disk
// only waits.
bool Host::check_disk(const Error& error) {
  const bool failed = parts_.store.failed() || error.code == ErrorCode::kIo;
  if (!failed) return true;
  fatal("the disk failed: " + error.message);
  return false;
}

void Host::write(const Write& write) {
  state_writes_.started(write);
  parts_.disk.run([this, write]() -> Done {
    Result<void> outcome;
    outcome = parts_.store.write({{std::string(kHostStateKey), write.state}});
    return [this, write, outcome = std::move(outcome)] {
      if (outcome) {
        state_writes_.saved(write);
        return push(Persisted{write.ticket});
      }
      if (!check_disk(outcome.error())) return;
      log_error("the disk is full: the daemon's state waits for room");
      state_writes_.refused(parts_.clock.now().boot);
    };
  });
}

// ---- Objects ----------------------------------------------------------------

void Host::fetch(const FetchObject& order) {
  const Hash object = name_of(order.object);
  const std::uint64_t number = ++orders_;
  wanted_[object] = {order, number};
  // Checkpoints are checked as they are read; a shard is mapped by the engine,
  // so it is checked here, once a process.
  const bool verify =
      order.verify || (order.kind == ObjectKind::kShard && !verified_.contains(object));
  parts_.disk.run([this, object, verify, number]() -> Done {
    Result<bool> whole = is_whole(parts_.objects, object, verify);
    return [this, object, number, whole = std::move(whole)] {
      const auto at = wanted_.find(object);
      if (at == wanted_.end() || at->second.number != number) return;
      if (!whole) {
        if (!check_disk(whole.error())) return;
        log_warning("an object on disk is damaged: " + whole.error().message);
      }
      if (!whole || !*whole) return start_fetch(at->second.order);
      verified_.insert(object);
      wanted_.erase(at);
      push(ObjectStored{object, {}, facts_of(object)});
    };
  });
}

std::optional<CheckpointFacts> Host::facts_of(const Hash& object) const {
  const Result<storage::ObjectInfo> info = parts_.objects.info(object);
  return info ? checkpoint_facts(*info) : std::nullopt;
}

void Host::cancel(const Hash& object) {
  wanted_.erase(object);
  peers_->cancel(object);
}

void Host::start_fetch(const FetchObject& order) {
  const Hash object = name_of(order.object);
  if (peer_gossip_) peer_gossip_->seek(object, parts_.clock.now());
  // From any connected node: a record has no room for all objects that a node
  // of a large dataset holds.
  peers_->fetch({.object = object,
                 .manifest_bytes = order.object.manifest_bytes(),
                 .from = {},
                 .parts = {},
                 .last_resort = {coordinator_}});
}

void Host::drop(const DropObject& order) {
  verified_.erase(order.manifest);
  objects_changed_ = true;
  parts_.disk.run([this, object = order.manifest]() -> Done {
    Result<void> outcome = parts_.objects.drop(object);
    return [this, outcome = std::move(outcome)] {
      if (!outcome && outcome.error().code != ErrorCode::kNotFound) check_disk(outcome.error());
    };
  });
}

// ---- Engines ----------------------------------------------------------------

void Host::start(const StartEngine& order) {
  assembling_[order.engine] = false;
  parts_.disk.run([this, order]() -> Done {
    auto resume = std::make_shared<Result<ResumeFile>>(ResumeFile{});
    if (is_set(order.resume)) *resume = open_resume(parts_.objects, name_of(order.resume));
    return [this, order, resume] { launch(order, std::move(*resume)); };
  });
}

void Host::launch(const StartEngine& order, Result<ResumeFile> resume) {
  const bool stopped = assembling_[order.engine];
  assembling_.erase(order.engine);
  EngineExited never{
      .slot = order.slot, .engine = order.engine, .how = "it was stopped before it started"};
  if (stopped) return push(std::move(never));
  if (!resume) {
    never.how = "it was not started";
    never.resume_error = resume.error();
    return push(std::move(never));
  }
  pb::EngineRequest::Start start = order.start;
  for (const pb::ObjectRef& shard : order.shards) {
    Result<std::string> path = parts_.objects.path_of(name_of(shard));
    if (!path) {
      never.how = "cannot start: " + path.error().message;
      return push(std::move(never));
    }
    start.add_shard_paths(std::move(*path));
  }
  start.set_resume_bytes(resume->bytes);
  std::string cards;
  for (const std::uint32_t index : order.cards) {
    for (const DeviceSlot& slot : options_.slots) {
      if (slot.description.index() == index && !slot.card.empty())
        cards += text(cards.empty() ? "" : ",", slot.card);
    }
  }
  start.set_device(cards.empty() ? -1 : 0);
  parts_.engines.start(order, std::move(start), std::move(resume->file), cards);
  take_engine_events();
}

void Host::stop(const StopEngine& order) {
  if (const auto at = assembling_.find(order.engine); at != assembling_.end()) {
    at->second = true;
    return;
  }
  parts_.engines.stop(order);
}

void Host::store(const StoreSnapshot& order) {
  std::shared_ptr<const Snapshot> snapshot = parts_.engines.snapshot(order.engine);
  SKERRY_CHECK(snapshot != nullptr, "a snapshot to store is kept until it is");
  parts_.disk.run([this, order, snapshot]() -> Done {
    Result<pb::ObjectRef> stored = store_snapshot(parts_.objects, order, *snapshot);
    return [this, order, stored = std::move(stored)] {
      if (stored) {
        objects_changed_ = true;
        parts_.engines.release_snapshot(order.engine);
        return push(SnapshotStored{order.slot, order.engine, *stored});
      }
      if (!check_disk(stored.error())) return;
      push(SnapshotFailed{order.slot, order.engine, stored.error()});
    };
  });
}

// A snapshot's memory can be as large as the model. The snapshot of an ended
// engine is kept only until the core has no use for it.
void Host::release_snapshots() {
  if (ended_.empty()) return;
  const std::vector<SlotView> slots = core_.slots();
  std::erase_if(ended_, [&](const auto& ended) {
    const auto& [engine, index] = ended;
    const auto stores = [&, index = index](const SlotView& slot) {
      return slot.slot == index && slot.storing;
    };
    if (std::ranges::any_of(slots, stores)) return false;
    parts_.engines.release_snapshot(engine);
    return true;
  });
}

}  // namespace skerry::daemon
