// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/speeds.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "model/memory_plan.h"
#include "model/operations.h"

namespace skerry::coordinator {
namespace {

constexpr double kPasses = 3;              // forward, and twice as much backward
constexpr double kShareOfPeak = 0.35;      // of what a maker publishes, an engine reaches so much
constexpr double kNewest = 0.25;           // the weight of the last measurement
constexpr double kWorthWriting = 0.01;     // a change by less is not made durable
constexpr std::uint32_t kCardsLooked = 8;  // of a lease whose speed tells of one card
// Of a device without any word on it, in a fleet without any. A CPU has no
// published number: one of some cores computes about this much.
constexpr double kCpu = 1e11;
constexpr double kUnknown = 1e13;

ModelSpec plain(const pb::ModelSpec& model) {
  return {.image_size = model.image_size(),
          .channels = model.channels(),
          .patch_size = model.patch_size(),
          .width = model.width(),
          .depth = model.depth(),
          .heads = model.heads(),
          .classes = model.classes(),
          .router_experts = model.router_experts(),
          .caption_dim = model.caption_dim(),
          .caption_tokens = model.caption_tokens()};
}

// What the memory depends on.
TrainSpec plain(const pb::TrainSpec& train) {
  TrainSpec out;
  out.batch_size = train.batch_size();
  out.precision = train.precision();
  out.gradient_checkpointing = train.gradient_checkpointing();
  if (train.state() == pb::STATE_FORM_LEAN) out.state = StateForm::kLean;
  if (train.kernels() == pb::KERNELS_FAST) out.kernels = KernelChoice::kFast;
  return out;
}

double mixed(double before, double now) { return before + kNewest * (now - before); }

std::string several(std::uint32_t cards, const std::string& device) {
  return cards > 1 ? text(cards, " x ", device) : device;
}

}  // namespace

Job job_of(const Run& run, bool router) {
  const std::uint32_t experts = run.record->experts();
  const std::uint32_t index = router ? experts - 1 : 0;
  const pb::TrainSpec training = run.training_of(index);
  const ModelSpec model =
      plain(router ? router_model(run.record->model(), index) : run.record->model());
  const TrainSpec train = plain(training);
  return {.kind = text(train.precision, " ", to_string(train.kernels), " ", model.width, "x",
                       model.tokens(), model.is_pixart() ? " pixart" : ""),
          .precision = train.precision,
          .operations = kPasses * forward_flops(model) * train.batch_size,
          .needs_bytes = bytes_for_a_row(plan_memory(model, train))};
}

const char* to_string(SpeedFrom from) {
  switch (from) {
    case SpeedFrom::kNode:
      return "measured on this node";
    case SpeedFrom::kDevice:
      return "measured on this device";
    case SpeedFrom::kOtherKind:
      return "measured on this device, of another kind of run";
    case SpeedFrom::kMaker:
      return "by its maker's table";
    case SpeedFrom::kFleet:
      return "unknown, as the fleet's median";
  }
  return "";
}

void Speeds::measured(const NodeId& node, const std::string& device, const Job& job, Step steps,
                      double seconds, std::uint32_t cards) {
  const double speed = job.operations * static_cast<double>(steps) / seconds;
  if (!std::isfinite(speed) || speed <= 0) return;
  stored::Speed record;
  record.set_device(several(cards, device));
  record.set_kind(job.kind);
  record.set_operations_per_second(speed);
  record.set_unix_ms(now.unix_ms);
  const std::string key = id_of(record);
  remember(node, key, speed);
  const auto found = speeds_.find(key);
  if (found == speeds_.end()) {
    if (speeds_.size() >= kSpeeds) {
      const auto oldest = std::min_element(speeds_.begin(), speeds_.end(), [](auto& a, auto& b) {
        return a.second.record->unix_ms() < b.second.record->unix_ms();
      });
      speeds_.erase(oldest->first);
    }
    speeds_.insert({Tracked(std::move(record))});
    return;
  }
  const double before = found->second.record->operations_per_second();
  const double after = mixed(before, speed);
  if (std::abs(after - before) < kWorthWriting * before) return;
  stored::Speed& kept = found->second.record.change();
  kept.set_operations_per_second(after);
  kept.set_unix_ms(now.unix_ms);
}

void Speeds::remember(const NodeId& node, const std::string& key, double speed) {
  constexpr std::size_t kKinds = 16;
  if (of_node_.size() >= kNodes && !of_node_.contains(node)) {
    of_node_.erase(std::ranges::min_element(of_node_, {},
                                            [](const auto& each) { return each.second.measured; }));
  }
  OfNode& its = of_node_[node];
  its.measured = now.boot;
  if (its.speeds.size() >= kKinds && !its.speeds.contains(key)) its.speeds.clear();
  const auto [at, is_first] = its.speeds.try_emplace(key, speed);
  if (!is_first) at->second = mixed(at->second, speed);
}

std::optional<Speed> Speeds::of_device(const Job& job, const std::string& device) const {
  const std::string first = device + '/';
  if (const auto same = speeds_.find(first + job.kind); same != speeds_.end())
    return Speed{same->second.record->operations_per_second(), SpeedFrom::kDevice};
  // Where all its leases hold several cards, one does its share of them.
  for (std::uint32_t cards = 2; cards <= kCardsLooked; ++cards) {
    const auto many = speeds_.find(several(cards, device) + '/' + job.kind);
    if (many == speeds_.end()) continue;
    return Speed{many->second.record->operations_per_second() / cards, SpeedFrom::kDevice};
  }
  const auto other = speeds_.lower_bound(first);
  if (other != speeds_.end() && other->first.starts_with(first))
    return Speed{other->second.record->operations_per_second(), SpeedFrom::kOtherKind};
  if (const auto peak = published_peak(device, job.precision))
    return Speed{kShareOfPeak * *peak, SpeedFrom::kMaker};
  if (device == "cpu") return Speed{kCpu, SpeedFrom::kMaker};
  return std::nullopt;
}

std::vector<Speed> Speeds::of(const Job& job, const std::vector<Slot>& slots) const {
  std::map<std::string, std::optional<Speed>> devices;
  std::vector<Speed> speeds;
  std::vector<double> sorted;
  std::vector<std::size_t> unknown;
  for (const Slot& slot : slots) {
    std::optional<Speed> speed;
    if (const auto node = of_node_.find(slot.node); node != of_node_.end()) {
      const auto mine = node->second.speeds.find(slot.device + '/' + job.kind);
      if (mine != node->second.speeds.end()) speed = Speed{mine->second, SpeedFrom::kNode};
    }
    if (!speed) {
      const auto [at, is_new] = devices.try_emplace(slot.device);
      if (is_new) at->second = of_device(job, slot.device);
      speed = at->second;
    }
    if (speed) {
      sorted.push_back(speed->operations_per_second);
    } else {
      unknown.push_back(speeds.size());
    }
    speeds.push_back(speed.value_or(Speed{}));
  }
  std::ranges::sort(sorted);
  const double median = sorted.empty() ? kUnknown : sorted[sorted.size() / 2];
  for (const std::size_t each : unknown) speeds[each] = {median, SpeedFrom::kFleet};
  return speeds;
}

std::optional<Speed> Speeds::of(const Slot& slot) const {
  const std::string first = slot.device + '/';
  if (const auto node = of_node_.find(slot.node); node != of_node_.end()) {
    const auto mine = node->second.speeds.lower_bound(first);
    if (mine != node->second.speeds.end() && mine->first.starts_with(first))
      return Speed{mine->second, SpeedFrom::kNode};
  }
  const auto device = speeds_.lower_bound(first);
  if (device != speeds_.end() && device->first.starts_with(first))
    return Speed{device->second.record->operations_per_second(), SpeedFrom::kDevice};
  if (const auto peak = published_peak(slot.device, "bf16"))
    return Speed{kShareOfPeak * *peak, SpeedFrom::kMaker};
  return std::nullopt;
}

double Speeds::gain(const Job& job, const Slot& slot, std::uint32_t cards) const {
  const std::string many = several(cards, slot.device) + '/' + job.kind;
  const std::string half = several(cards / 2, slot.device) + '/' + job.kind;
  if (const auto node = of_node_.find(slot.node); node != of_node_.end()) {
    const auto its_many = node->second.speeds.find(many), its_half = node->second.speeds.find(half);
    if (its_many != node->second.speeds.end() && its_half != node->second.speeds.end())
      return its_many->second / its_half->second;
  }
  const auto all_many = speeds_.find(many), all_half = speeds_.find(half);
  if (all_many == speeds_.end() || all_half == speeds_.end()) return 0;
  return all_many->second.record->operations_per_second() /
         all_half->second.record->operations_per_second();
}

std::string Speeds::load(stored::Speed record) {
  const double speed = record.operations_per_second();
  if (!std::isfinite(speed) || speed <= 0) return "its speed is not a number above 0";
  speeds_.load({Tracked(std::move(record))});
  return "";
}

}  // namespace skerry::coordinator
