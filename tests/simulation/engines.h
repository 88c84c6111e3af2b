// SPDX-License-Identifier: Apache-2.0
// Engines of a simulated daemon. Their snapshots and checkpoints are real
// safetensors files, so what a host stores, moves and resumes from is what is
// checked.
//
// THREADS: one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/host/engines.h"
#include "storage/object_store.h"
#include "tests/simulation/fake_engine.h"
#include "tests/simulation/machine.h"

namespace skerry::simulation {

class Engines final : public daemon::Engines {
 public:
  struct Settings {
    std::string name;  // of the daemon
    Duration step_time{};
    Duration start_min{}, start_max{};  // from its start to its first step
    bool exact = false;                 // as FakeEngine::Settings has it
    double gain = 0.85;                 // of a further card, as a share of the first one's speed
    const Disk& disk;
    const std::set<std::string>& lost;  // cards
    std::uint64_t& starts;              // of engines, over all lives
    std::function<void()> wake;         // an engine has said something
    std::function<void()> stores;       // the next job of the disk stores a snapshot
  };
  Engines(World& world, Settings settings, Dice dice)
      : world_(world), settings_(std::move(settings)), dice_(std::move(dice)) {}
  ~Engines() override { *alive_ = false; }

  // daemon::Engines
  void start(const daemon::StartEngine& order, pb::EngineRequest::Start start,
             std::unique_ptr<storage::File> resume, const std::string& cards) override;
  void stop(const daemon::StopEngine& order) override;
  void plan(const daemon::PlanRound& order) override;
  std::shared_ptr<const daemon::Snapshot> snapshot(std::uint64_t engine) const override;
  void release_snapshot(std::uint64_t engine) override;
  std::vector<daemon::Event> take_events() override { return std::exchange(events_, {}); }
  std::vector<std::string> take_lines() override { return {}; }

  // One of them dies or stops answering. False: none runs.
  bool break_one(bool hangs, bool for_memory);
  // Those that train on this card fail.
  void lose_card(const std::string& card);
  // RETURNS: a card of an engine that has several; empty: none has.
  std::string shared_card(Dice& dice) const;
  // RETURNS: the one in this slot, if it trains.
  const FakeEngine* training_in(std::uint32_t slot) const;

 private:
  FakeEngine* running(std::uint64_t engine);
  Result<Training> read(const daemon::StartEngine& order, const storage::File& file) const;
  void say(std::uint64_t engine, daemon::Event event);
  void push(daemon::Event event);

  World& world_;
  Settings settings_;
  Dice dice_;
  std::map<std::uint64_t, std::unique_ptr<FakeEngine>> engines_;
  std::map<std::uint64_t, std::uint32_t> slots_;             // of those that run
  std::map<std::uint64_t, std::vector<std::string>> cards_;  // likewise
  std::map<std::uint64_t, std::shared_ptr<Training>>
      memories_;  // written again and again by their engines
  std::vector<daemon::Event> events_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace skerry::simulation
