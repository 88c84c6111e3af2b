// SPDX-License-Identifier: Apache-2.0
// An engine that trains by a rule: steps pass on the virtual clock, weights are
// a hash chain. It keeps the real engine's contract:
// - It trains in rounds.
// - It writes its one snapshot memory again only after its release; the span
//   grows meanwhile.
// - It can be stopped in three ways.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "daemon/core/event.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

inline constexpr char kBrokenEngine[] = "signal 11";  // the end of an engine that nobody stopped

class FakeEngine {
 public:
  struct Settings {
    std::uint32_t slot = 0;
    std::uint64_t engine = 0;
    Step target = 0;
    pb::EngineRequest::RoundPlan plan;
    Duration step_time = milliseconds(100);
    Duration start_time = milliseconds(500);
    // A step counts once its time has passed. Otherwise some are taken at once,
    // and their time passes afterwards.
    bool exact = false;
    std::string fingerprint;
    bool lacks_card = false;  // it finds fewer than it was given
  };
  using Say = std::function<void(daemon::Event)>;  // to the daemon's core

  // Destroyed, it is dead and says nothing any more.
  FakeEngine(World& world, Settings settings, Training from, Say say);
  ~FakeEngine();
  FakeEngine(const FakeEngine&) = delete;
  FakeEngine& operator=(const FakeEngine&) = delete;

  void set_plan(const pb::EngineRequest::RoundPlan& plan) { settings_.plan = plan; }
  void finish_round() { finish_round_ = true; }
  void snapshot_now() { snapshot_now_ = true; }
  // It dies by itself: says so as its last word, and is to be destroyed then.
  void die(const std::string& how, bool for_memory);
  void hang() { hangs_ = true; }
  // One of its cards is gone, now or since before its start.
  void lose_card();
  void snapshot_done();
  // What stands in the snapshot memory.
  const Training& snapshot() const { return snapshot_; }
  bool has_ended() const { return ended_; }
  bool has_stepped() const { return stepped_; }  // and said so
  bool is_training() const { return ready_ && !ended_ && !hangs_; }
  const Training& training() const { return training_; }
  std::uint64_t number() const { return settings_.engine; }

 private:
  void later(Duration delay, void (FakeEngine::*action)());
  void ready();
  void step();
  bool offer_snapshot();
  void end_round();
  void leave();
  void fail(pb::EngineEvent::Failure failure, const std::string& reason);

  World& world_;
  Settings settings_;
  Training training_;
  Say say_;
  Training snapshot_;
  Step round_start_ = 0;
  Step offered_ = 0;  // the step of the last snapshot
  Duration round_began_{};
  bool memory_held_ = false;
  bool finish_round_ = false;
  bool snapshot_now_ = false;
  bool waits_for_memory_ = false;
  bool hangs_ = false;
  bool ready_ = false;
  bool stepped_ = false;
  bool ended_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace skerry::simulation
