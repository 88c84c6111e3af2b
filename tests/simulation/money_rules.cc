// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/money_rules.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tests/simulation/durable.h"

namespace skerry::simulation {
namespace {

constexpr double kShare = 0.001;
constexpr double kLeast = 1e-9;  // dollars: what rounding may add
constexpr double kHour = 3600;

}  // namespace

void MoneyRules::coordinator_started(const coordinator::Core& core, const Durable& durable) {
  nodes_.clear();
  limits_.clear();
  leases_.clear();
  epochs_.clear();
  over_.clear();
  written_.clear();
  each<stored::Run>(durable, coordinator::kRunPrefix, [&](const stored::Run& run) {
    limits_[RunId(run.id())] = {run.spec().budget_dollars(), run.spec().budget_dollars_per_hour(),
                                run.spec().max_node_price(), run.wanted() == stored::WANTED_ACTIVE};
  });
  each<stored::Node>(durable, coordinator::kNodePrefix,
                     [&](const stored::Node& node) { nodes_[node.id()].present = node.present(); });
  for (const coordinator::ExpertView& view : core.experts()) {
    epochs_[view.id] = view.epoch;
    const double sum = view.dollars;
    const double counted = spent_.contains(view.id) ? spent_[view.id] : sum;
    if (sum > counted * (1 + kShare) + kLeast)
      world_.violated("money", text(view.id, ": a start counts ", sum, " dollars of ", counted));
    if (const auto known = durable_.find(view.id);
        known != durable_.end() && sum < known->second * (1 - kShare) - kLeast)
      world_.violated("money", text(view.id, ": a start has lost durable sums: ", sum,
                                    " dollars of ", known->second));
    spent_[view.id] = sum;
  }
  last_ = boot_();
  runs_ = true;
}

void MoneyRules::coordinator_stopped() { runs_ = false; }

// Another state's sums count from here on.
void MoneyRules::coordinator_restored(const Durable&) {
  durable_.clear();
  spent_.clear();
}

double MoneyRules::spent(const RunId& run) const {
  double sum = 0;
  for (const auto& [id, dollars] : spent_) sum += id.run == run ? dollars : 0;
  return sum;
}

// Of all of its slots.
double MoneyRules::price_of(const coordinator::LeaseView& lease) const {
  const auto node = nodes_.find(lease.node.str());
  return node == nodes_.end()
             ? 0
             : node->second.slot_price() * static_cast<double>(1 + lease.more.size());
}

// As it was since the last step.
void MoneyRules::pass(Duration now) {
  const double hours = std::chrono::duration<double>(now - last_).count() / kHour;
  last_ = now;
  for (const auto& [id, lease] : leases_) {
    const auto node = nodes_.find(lease.node.str());
    if (node == nodes_.end() || !node->second.is_connected()) continue;
    std::vector<std::uint32_t> slots = lease.more;
    slots.push_back(lease.slot);
    const auto offered =
        std::ranges::count_if(slots, [&](std::uint32_t slot) { return slot < node->second.slots; });
    spent_[id] += hours * node->second.slot_price() * static_cast<double>(offered);
  }
}

void MoneyRules::coordinator_stepped(const CoordinatorStep& step) {
  if (!runs_) return;
  pass(boot_());
  if (step.event != nullptr) {
    if (const auto* received = std::get_if<coordinator::Received>(step.event))
      take_word(step, *received);
    if (const auto* closed = std::get_if<coordinator::Closed>(step.event)) {
      for (auto& [id, node] : nodes_) {
        if (node.connection == closed->connection) node.connection.clear();
      }
    }
    if (std::holds_alternative<coordinator::Tick>(*step.event)) compare(step.experts);
  }
  take_writes(step);
  if (step.event != nullptr && std::holds_alternative<coordinator::Tick>(*step.event))
    look_at_budgets(step.experts);
  look_at_grants(step.experts);
  leases_.clear();
  for (const coordinator::ExpertView& view : step.experts) {
    if (view.lease && !view.lease->lapsed) leases_[view.id] = *view.lease;
    epochs_[view.id] = view.epoch;
  }
}

void MoneyRules::take_word(const CoordinatorStep& step, const coordinator::Received& event) {
  if (!event.request.has_hello() || event.request.hello().incarnation() == 0) return;
  const bool is_answered =
      std::ranges::any_of(step.effects.sends, [&](const coordinator::Send& send) {
        const auto* reply = std::get_if<pb::ControlReply>(&send.message);
        return send.connection == event.connection && reply != nullptr && reply->has_hello();
      });
  const std::optional<NodeId> id = step.core.node_of_key(event.key);
  if (!id || !is_answered) return;
  Node& node = nodes_[id->str()];
  node.connection = event.connection;
  node.price = event.request.hello().price();
  node.slots = static_cast<std::size_t>(event.request.hello().slots_size());
}

void MoneyRules::take_writes(const CoordinatorStep& step) {
  bool sums = false;
  for (const auto& write : step.effects.batch.writes) {
    if (write.key.starts_with(coordinator::kNodePrefix)) {
      const std::string id = write.key.substr(std::string_view(coordinator::kNodePrefix).size());
      stored::Node node;
      nodes_[id].present =
          write.value && node.ParseFromString(*write.value) && node.present() && !node.revoked();
      if (!write.value || node.revoked()) nodes_[id].connection.clear();
    } else if (write.key.starts_with(coordinator::kRunPrefix)) {
      const RunId id(write.key.substr(std::string_view(coordinator::kRunPrefix).size()));
      stored::Run run;
      if (!write.value) {
        limits_.erase(id);
      } else if (run.ParseFromString(*write.value)) {
        if (run.spec().budget_dollars() != limits_[id].dollars) over_.erase(id);
        limits_[id] = {run.spec().budget_dollars(), run.spec().budget_dollars_per_hour(),
                       run.spec().max_node_price(), run.wanted() == stored::WANTED_ACTIVE};
      }
    } else if (write.key.starts_with(coordinator::kSpendingPrefix)) {
      sums |= write.value.has_value();
    }
  }
  const bool is_tick =
      step.event != nullptr && std::holds_alternative<coordinator::Tick>(*step.event);
  if (sums && is_tick) written_[step.effects.batch.number] = spent_;
  while (!written_.empty() && written_.begin()->first <= step.core.persisted_batch()) {
    durable_ = std::move(written_.begin()->second);
    written_.erase(written_.begin());
  }
}

// Its sums are those of this moment only after a tick.
void MoneyRules::compare(const std::vector<coordinator::ExpertView>& experts) {
  for (const coordinator::ExpertView& view : experts) {
    const double mine = spent_[view.id];
    if (std::abs(view.dollars - mine) > kShare * mine + kLeast)
      world_.violated("money", text(view.id, " has cost ", mine,
                                    " dollars, and the coordinator "
                                    "counts ",
                                    view.dollars));
  }
}

void MoneyRules::look_at_budgets(const std::vector<coordinator::ExpertView>& experts) {
  over_.clear();
  for (const auto& [run, limits] : limits_) {
    if (limits.dollars <= 0 || spent(run) <= limits.dollars * (1 + kShare) + kLeast) continue;
    over_.insert(run);
    if (limits.is_active)
      world_.violated("budget", text(run, " goes on beyond its budget of ", limits.dollars));
  }
  for (const coordinator::ExpertView& view : experts) {
    if (view.lease && !view.lease->lapsed && over_.contains(view.id.run) && !view.yields)
      world_.violated("budget", text(view.id, " is not asked back, and its run's budget is spent"));
  }
}

void MoneyRules::look_at_grants(const std::vector<coordinator::ExpertView>& experts) {
  std::map<RunId, double> rates;
  std::set<RunId> granted;
  for (const coordinator::ExpertView& view : experts) {
    if (!view.lease || view.lease->lapsed) continue;
    rates[view.id.run] += price_of(*view.lease);
    const auto before = leases_.find(view.id);
    const bool is_wider =
        before != leases_.end() && view.lease->more.size() > before->second.more.size();
    if (view.epoch == epochs_[view.id] && !is_wider) continue;
    granted.insert(view.id.run);
    if (over_.contains(view.id.run))
      world_.violated("budget", text(view.id, " is granted beyond its run's budget"));
    const double most = limits_[view.id.run].max_node_price;
    const double price = nodes_[view.lease->node.str()].price;
    if (most > 0 && price > most)
      world_.violated("price", text(view.id, " is granted to a node of ", price, " dollars"));
  }
  for (const RunId& run : granted) {
    const double most = limits_[run].dollars_per_hour;
    if (most > 0 && rates[run] > most * (1 + kShare))
      world_.violated("price", text(run, " costs ", rates[run], " dollars an hour by a grant"));
  }
}

}  // namespace skerry::simulation
