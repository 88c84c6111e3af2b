// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/engines.h"

#include <algorithm>
#include <sstream>

#include "base/text.h"

namespace skerry::simulation {
namespace {

// Shows the memory as it is when it is read, as shared memory does.
class MemorySnapshot final : public daemon::Snapshot {
 public:
  explicit MemorySnapshot(std::shared_ptr<const Training> memory) : memory_(std::move(memory)) {}
  Result<storage::Safetensors> tensors() const override {
    const std::string content = encode_training(*memory_);
    ASSIGN_OR_RETURN(std::string bytes,
                     storage::encode_safetensors(
                         {{"raw/w", storage::DType::kU8, {content.size()}, content}}, {}));
    return storage::Safetensors::parse(std::move(bytes));
  }

 private:
  std::shared_ptr<const Training> memory_;
};

}  // namespace

FakeEngine* Engines::running(std::uint64_t engine) {
  const auto found = engines_.find(engine);
  return found == engines_.end() || found->second->has_ended() ? nullptr : found->second.get();
}

const FakeEngine* Engines::training_in(std::uint32_t slot) const {
  for (const auto& [engine, its_slot] : slots_) {
    if (its_slot == slot && engines_.at(engine)->is_training()) return engines_.at(engine).get();
  }
  return nullptr;
}

// Through the channel: the host hears of it in a turn of its own.
void Engines::push(daemon::Event event) {
  if (events_.empty()) {
    world_.timeline.after({}, [this, alive = alive_] {
      if (*alive && !events_.empty()) settings_.wake();
    });
  }
  events_.push_back(std::move(event));
}

void Engines::say(std::uint64_t engine, daemon::Event event) {
  if (std::holds_alternative<daemon::EngineSnapshot>(event)) {
    std::shared_ptr<Training>& memory = memories_[engine];
    if (memory == nullptr) memory = std::make_shared<Training>();
    *memory = engines_.at(engine)->snapshot();
  }
  if (std::holds_alternative<daemon::EngineExited>(event)) {
    slots_.erase(engine);
    cards_.erase(engine);
  }
  push(std::move(event));
}

// What an engine reads is what its checkpoint's name says, unless the disk
// brings wrong bytes just now: nobody checks a mapped file.
Result<Training> Engines::read(const daemon::StartEngine& order, const storage::File& file) const {
  ASSIGN_OR_RETURN(const std::uint64_t size, file.size());
  std::string bytes(size, '\0');
  ASSIGN_OR_RETURN(const std::size_t read, file.read_at(0, bytes));
  bytes.resize(read);
  const Object& object = world_.library.at(*Hash::from_raw(order.resume.manifest()));
  if (!bytes.ends_with(object.content)) {
    if (!settings_.disk.flips())
      world_.violated("weights", settings_.name + " resumes from other weights than it is told to");
    return fail(ErrorCode::kCorrupt, "the checkpoint cannot be read");
  }
  return decode_training(object.content);
}

void Engines::start(const daemon::StartEngine& order, pb::EngineRequest::Start start,
                    std::unique_ptr<storage::File> resume, const std::string& cards) {
  std::erase_if(engines_, [](const auto& each) { return each.second->has_ended(); });
  for (const auto& [engine, slot] : slots_) {
    if (slot == order.slot)
      world_.violated("engine", settings_.name + " starts a second engine in a slot");
  }
  std::vector<std::string> its_cards;
  std::istringstream words(cards);
  for (std::string card; std::getline(words, card, ',');) its_cards.push_back(card);
  if (its_cards.size() != std::max(1U, start.cards()))
    world_.violated("card", text(settings_.name, " gives an engine the cards ", cards,
                                 " and tells it of ", start.cards()));
  for (const auto& [engine, others] : cards_) {
    for (const std::string& card : its_cards) {
      if (std::ranges::find(others, card) != others.end())
        world_.violated("card", text(settings_.name, " starts a second engine on ", card));
    }
  }
  for (const pb::ObjectRef& shard : order.shards) {
    const Object* const object = world_.library.find(*Hash::from_raw(shard.manifest()));
    if (object == nullptr || !settings_.disk.is_there(*object))
      world_.violated("S4",
                      settings_.name + " starts an engine on a shard that is not on its disk");
  }
  Training from{.seed = start.train().seed(),
                .expert = start.expert(),
                .attempt = start.attempt(),
                .step = 0,
                .weights = {}};
  if (resume) {
    const Result<Training> found = read(order, *resume);
    if (!found)
      return push(daemon::EngineExited{
          .slot = order.slot, .engine = order.engine, .how = found.error().message});
    if (found->expert != from.expert)
      world_.violated("weights", settings_.name + " resumes an expert from another's checkpoint");
    from.step = found->step;
    from.weights = found->weights;
  }
  ++settings_.starts;
  world_.trace.add(settings_.name, "engine", order.resume.manifest());
  world_.trace.line([&] {
    return text(settings_.name, " starts an engine at ",
                order.resume.manifest().empty() ? "the start"
                                                : world_.trace.object(order.resume.manifest()));
  });
  slots_[order.engine] = order.slot;
  FakeEngine::Settings settings;
  settings.lacks_card = std::ranges::any_of(
      its_cards, [&](const std::string& card) { return settings_.lost.contains(card); });
  settings.slot = order.slot;
  settings.engine = order.engine;
  settings.target = start.train().steps();
  settings.plan = start.plan();
  const double speed = 1 + settings_.gain * static_cast<double>(its_cards.size() - 1);
  settings.step_time = its_cards.size() == 1
                           ? settings_.step_time
                           : std::chrono::duration_cast<Duration>(settings_.step_time / speed);
  cards_[order.engine] = std::move(its_cards);
  settings.start_time = dice_.duration(settings_.start_min, settings_.start_max);
  settings.exact = settings_.exact;
  settings.fingerprint = "simulated engine";
  engines_[order.engine] = std::make_unique<FakeEngine>(
      world_, settings, from,
      [this, engine = order.engine](daemon::Event event) { say(engine, std::move(event)); });
}

void Engines::stop(const daemon::StopEngine& order) {
  FakeEngine* const engine = running(order.engine);
  if (engine == nullptr) return;
  if (order.kind == daemon::StopKind::kSnapshotNow) return engine->snapshot_now();
  if (order.kind == daemon::StopKind::kFinishRound) return engine->finish_round();
  engine->die("signal 9", false);
}

void Engines::plan(const daemon::PlanRound& order) {
  if (FakeEngine* const engine = running(order.engine)) engine->set_plan(order.plan);
}

std::shared_ptr<const daemon::Snapshot> Engines::snapshot(std::uint64_t engine) const {
  const auto found = memories_.find(engine);
  settings_.stores();
  return found == memories_.end() ? nullptr : std::make_shared<MemorySnapshot>(found->second);
}

void Engines::release_snapshot(std::uint64_t engine) {
  if (FakeEngine* const alive = running(engine)) {
    alive->snapshot_done();
  } else {
    memories_.erase(engine);
  }
}

void Engines::lose_card(const std::string& card) {
  for (const auto& [number, cards] : std::map(cards_)) {
    if (std::ranges::find(cards, card) == cards.end()) continue;
    if (FakeEngine* const engine = running(number)) engine->lose_card();
  }
}

std::string Engines::shared_card(Dice& dice) const {
  for (const auto& [number, cards] : cards_) {
    if (cards.size() > 1) return cards[dice.between(0, cards.size() - 1)];
  }
  return "";
}

bool Engines::break_one(bool hangs, bool for_memory) {
  for (auto& [number, engine] : engines_) {
    // One that starts, or takes its first step, is given minutes: not waited
    // for here.
    if (engine->has_ended() || (hangs && !engine->has_stepped())) continue;
    if (hangs) {
      engine->hang();
    } else {
      engine->die(kBrokenEngine, for_memory);
    }
    return true;
  }
  return false;
}

}  // namespace skerry::simulation
