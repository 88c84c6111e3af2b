// SPDX-License-Identifier: Apache-2.0
// Engines of a real daemon host that train by FakeEngine's rule. Their
// snapshots and checkpoints are real safetensors files, so what a host stores,
// moves and resumes from is what is checked.
//
// THREADS: one. LIFETIME: the world outlives it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/host/engines.h"
#include "storage/object_store.h"
#include "tests/simulation/fake_engine.h"
#include "tests/simulation/real_host.h"

namespace skerry::simulation {

Result<std::string> encode_training(const Training& training);
Result<Training> decode_training(const storage::Safetensors& file);
// "": the checkpoint holds the weights that an unbroken run has at the step
// that its manifest names.
std::string wrong_weights(const storage::ObjectStore& objects, const Hash& checkpoint);

class RealEngines final : public daemon::Engines {
 public:
  RealEngines(RealGround& ground, std::string name, Dice dice)
      : ground_(ground), name_(std::move(name)), dice_(std::move(dice)) {}

  void start(const daemon::StartEngine& order, pb::EngineRequest::Start start,
             std::unique_ptr<storage::File> resume, const std::string& card) override;
  void stop(const daemon::StopEngine& order) override;
  void plan(const daemon::PlanRound& order) override;
  std::shared_ptr<const daemon::Snapshot> snapshot(std::uint64_t engine) const override;
  void release_snapshot(std::uint64_t engine) override;
  std::vector<daemon::Event> take_events() override { return std::exchange(events_, {}); }
  std::vector<std::string> take_lines() override { return {}; }

  bool has_events() const { return !events_.empty(); }
  // One that trains dies. False: none does.
  bool crash_one();

 private:
  FakeEngine* running(std::uint64_t engine);
  void say(std::uint64_t engine, daemon::Event event);

  RealGround& ground_;
  std::string name_;
  Dice dice_;
  std::map<std::uint64_t, std::unique_ptr<FakeEngine>> engines_;
  std::map<std::uint64_t, std::uint32_t> slots_;  // of those that run
  std::map<std::uint64_t, std::shared_ptr<Training>>
      memories_;  // written again and again by their engines
  std::vector<daemon::Event> events_;
};

}  // namespace skerry::simulation
