// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/real_engines.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace skerry::simulation {
namespace {

// Shows the memory as it is when it is read, as shared memory does.
class MemorySnapshot final : public daemon::Snapshot {
 public:
  explicit MemorySnapshot(std::shared_ptr<const Training> memory) : memory_(std::move(memory)) {}
  Result<storage::Safetensors> tensors() const override {
    ASSIGN_OR_RETURN(std::string bytes, encode_training(*memory_));
    return storage::Safetensors::parse(std::move(bytes));
  }

 private:
  std::shared_ptr<const Training> memory_;
};

Result<Training> read_training(const storage::File& file) {
  ASSIGN_OR_RETURN(const std::uint64_t size, file.size());
  std::string bytes(size, '\0');
  ASSIGN_OR_RETURN(const std::size_t read, file.read_at(0, bytes));
  bytes.resize(read);
  ASSIGN_OR_RETURN(const storage::Safetensors tensors,
                   storage::Safetensors::parse(std::move(bytes)));
  return decode_training(tensors);
}

}  // namespace

Result<std::string> encode_training(const Training& training) {
  const std::string weights = training.weights.raw();
  return storage::encode_safetensors({{"ema/w", storage::DType::kU8, {weights.size()}, weights},
                                      {"raw/w", storage::DType::kU8, {weights.size()}, weights}},
                                     {{"seed", std::to_string(training.seed)},
                                      {"expert", std::to_string(training.expert)},
                                      {"step", std::to_string(training.step)}});
}

Result<Training> decode_training(const storage::Safetensors& file) {
  const auto number = [&](const char* name) {
    const auto found = file.header().metadata.find(name);
    return found == file.header().metadata.end()
               ? 0
               : std::strtoull(found->second.c_str(), nullptr, 10);
  };
  ASSIGN_OR_RETURN(const storage::TensorView weights, file.tensor("raw/w"));
  Training training{.seed = number("seed"),
                    .expert = static_cast<ExpertIndex>(number("expert")),
                    .attempt = 0,
                    .step = number("step"),
                    .weights = {}};
  ASSIGN_OR_RETURN(training.weights, Hash::from_raw(std::string(weights.data)));
  return training;
}

std::string wrong_weights(const storage::ObjectStore& objects, const Hash& checkpoint) {
  const auto named = objects.manifest(checkpoint);
  if (!named) return named.error().message;
  const auto layout = storage::safetensors_layout(named->manifest);
  if (!layout) return layout.error().message;
  std::string bytes = layout->prefix;
  for (const storage::Placement& place : layout->placements) {
    const auto chunk = objects.read(checkpoint, place.chunk.hash);
    if (!chunk) return chunk.error().message;
    bytes += *chunk;
  }
  const auto tensors = storage::Safetensors::parse(bytes);
  if (!tensors) return tensors.error().message;
  const auto found = decode_training(*tensors);
  if (!found) return found.error().message;
  if (found->step != named->manifest.step || found->expert != named->manifest.expert)
    return text("expert ", found->expert, " at step ", found->step, " under the name of expert ",
                named->manifest.expert, " at step ", named->manifest.step);
  Training unbroken{
      .seed = found->seed, .expert = found->expert, .attempt = 0, .step = 0, .weights = {}};
  while (unbroken.step < found->step) train_step(unbroken);
  return unbroken.weights == found->weights
             ? ""
             : text("other weights than an unbroken run at step ", found->step);
}

FakeEngine* RealEngines::running(std::uint64_t engine) {
  const auto found = engines_.find(engine);
  return found == engines_.end() || found->second->has_ended() ? nullptr : found->second.get();
}

void RealEngines::say(std::uint64_t engine, daemon::Event event) {
  if (std::holds_alternative<daemon::EngineSnapshot>(event)) {
    std::shared_ptr<Training>& memory = memories_[engine];
    if (memory == nullptr) memory = std::make_shared<Training>();
    *memory = engines_.at(engine)->snapshot();
  }
  if (std::holds_alternative<daemon::EngineExited>(event)) slots_.erase(engine);
  events_.push_back(std::move(event));
}

void RealEngines::start(const daemon::StartEngine& order, pb::EngineRequest::Start start,
                        std::unique_ptr<storage::File> resume, const std::string&) {
  std::erase_if(engines_, [](const auto& each) { return each.second->has_ended(); });
  for (const auto& [engine, slot] : slots_) {
    if (slot == order.slot) ground_.violated("engine", name_ + " starts a second engine in a slot");
  }
  Training from{.seed = start.train().seed(),
                .expert = start.expert(),
                .attempt = 0,
                .step = 0,
                .weights = {}};
  if (resume) {
    const Result<Training> found = read_training(*resume);
    if (!found) {
      events_.push_back(daemon::EngineExited{
          .slot = order.slot, .engine = order.engine, .how = found.error().message});
      return;
    }
    if (found->expert != from.expert)
      ground_.violated("weights", name_ + " resumes an expert from another's checkpoint");
    from.step = found->step;
    from.weights = found->weights;
  }
  ground_.tell(text(name_, " starts an engine at step ", from.step));
  slots_[order.engine] = order.slot;
  events_.push_back(daemon::EngineStarting{order.slot, order.engine, "loading the program"});
  FakeEngine::Settings settings;
  settings.slot = order.slot;
  settings.engine = order.engine;
  settings.target = start.train().steps();
  settings.plan = start.plan();
  settings.start_time = dice_.duration(milliseconds(300), milliseconds(900));
  settings.fingerprint = "simulated engine";
  engines_[order.engine] = std::make_unique<FakeEngine>(
      ground_.world, settings, from,
      [this, engine = order.engine](daemon::Event event) { say(engine, std::move(event)); });
}

void RealEngines::stop(const daemon::StopEngine& order) {
  FakeEngine* const engine = running(order.engine);
  if (engine == nullptr) return;
  if (order.kind == daemon::StopKind::kSnapshotNow) return engine->snapshot_now();
  if (order.kind == daemon::StopKind::kFinishRound) return engine->finish_round();
  engine->die("signal 9", false);
}

void RealEngines::plan(const daemon::PlanRound& order) {
  if (FakeEngine* const engine = running(order.engine)) engine->set_plan(order.plan);
}

std::shared_ptr<const daemon::Snapshot> RealEngines::snapshot(std::uint64_t engine) const {
  const auto found = memories_.find(engine);
  return found == memories_.end() ? nullptr : std::make_shared<MemorySnapshot>(found->second);
}

void RealEngines::release_snapshot(std::uint64_t engine) {
  if (FakeEngine* const alive = running(engine)) {
    alive->snapshot_done();
  } else {
    memories_.erase(engine);
  }
}

bool RealEngines::crash_one() {
  for (const auto& [number, engine] : engines_) {
    if (!engine->is_training()) continue;
    engine->die(kBrokenEngine, false);
    return true;
  }
  return false;
}

}  // namespace skerry::simulation
