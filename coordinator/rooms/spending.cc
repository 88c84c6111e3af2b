// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/spending.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/text.h"

namespace skerry::coordinator {
namespace {

constexpr double kSecondsOfHour = 3600;

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

double at(const std::vector<double>& amounts, std::uint32_t index) {
  return index < amounts.size() ? amounts[index] : 0;
}

double at(const google::protobuf::RepeatedField<double>& amounts, std::uint32_t index) {
  return static_cast<int>(index) < amounts.size() ? amounts[static_cast<int>(index)] : 0;
}

double sum_of(const Spending::Account& account) {
  return std::accumulate(account.record->dollars().begin(), account.record->dollars().end(), 0.0) +
         std::accumulate(account.unsaved.begin(), account.unsaved.end(), 0.0);
}

void write(Spending::Account& account) {
  stored::Spending& record = account.record.change();
  const auto size = static_cast<int>(account.unsaved.size());
  if (record.dollars_size() < size) record.mutable_dollars()->Resize(size, 0);
  for (int i = 0; i < size; ++i)
    record.set_dollars(i, record.dollars(i) + account.unsaved[static_cast<std::size_t>(i)]);
  account.unsaved.clear();
  record.set_lost_steps(record.lost_steps() + std::exchange(account.unsaved_steps, 0));
}

}  // namespace

std::string human_dollars(double dollars) {
  constexpr double kSmall = 0.1;
  std::ostringstream out;
  out << std::fixed << std::setprecision(dollars != 0 && std::abs(dollars) < kSmall ? 5 : 2)
      << dollars << " dollars";
  return out.str();
}

double slot_price(const Node& node) {
  const auto slots = node.session->slots.size();
  return slots == 0 ? 0 : node.session->price / static_cast<double>(slots);
}

// ---- Meters -----------------------------------------------------------------

std::optional<Spending::Meter> Spending::read(const Node& node) const {
  const double price = slot_price(node);
  if (price <= 0 || node.session->connection.empty() || !node.record->present())
    return std::nullopt;
  Meter meter{now.boot, price / kSecondsOfHour, {}};
  meter.payers.resize(node.session->slots.size());
  for (const ExpertId& id : *node.leases) {
    const Expert* expert = runs_.find_expert(id.run, id.index);
    if (expert == nullptr || !expert->held()) continue;
    const stored::Lease& lease = expert->record->lease();
    if (lease.slot() < meter.payers.size()) meter.payers[lease.slot()] = id;
    for (const std::uint32_t slot : lease.more_slots()) {
      if (slot < meter.payers.size()) meter.payers[slot] = id;
    }
  }
  return meter;
}

void Spending::charge(Meter& meter) {
  const Duration passed = std::clamp(now.boot - meter.since, Duration{}, kLongestCharge);
  meter.since = now.boot;
  const double dollars = seconds_of(passed) * meter.dollars_per_second;
  if (dollars <= 0) return;
  for (const auto& payer : meter.payers)
    payer ? add(payer->run, payer->index, dollars) : add(RunId(), 0, dollars);
}

void Spending::settle() {
  const bool is_changed = !context.remetered.empty();
  for (const NodeId& id : std::exchange(context.remetered, {})) {
    const auto known = meters_.find(id);
    if (known != meters_.end()) charge(known->second);
    const Node* node = roster_.find(id);
    std::optional<Meter> meter = node == nullptr ? std::nullopt : read(*node);
    if (meter) {
      meters_[id] = std::move(*meter);
    } else if (known != meters_.end()) {
      meters_.erase(known);
    }
  }
  // Without prices, what was lost goes into the batch of the lease that ended:
  // no write is made for it alone.
  if (!is_changed || !meters_.empty()) return;
  for (auto& [id, account] : accounts_) {
    if (account.unsaved_steps > 0 || !account.unsaved.empty()) write(account);
  }
}

void Spending::tick() {
  if (charged_ && now.boot - *charged_ > kLongestCharge && !meters_.empty()) {
    events_.tell(EventKind::kBudget,
                 text("the coordinator did nothing for ", human_duration(now.boot - *charged_),
                      ": its machine slept or its clock jumped; ", human_duration(kLongestCharge),
                      " of it are charged"));
  }
  charged_ = now.boot;
  for (auto& [id, meter] : meters_) charge(meter);
  for (auto& [id, run] : runs_.all()) {
    if (run.active() && is_spent(run)) pause_spent(run);
  }
  save();
}

// ---- Accounts ---------------------------------------------------------------

Spending::Account& Spending::account(const RunId& run) {
  const auto known = accounts_.find(run);
  if (known != accounts_.end()) return known->second;
  Account opened;
  stored::Spending record;
  record.set_run(run.str());
  opened.record = Tracked(std::move(record));
  return accounts_.load(std::move(opened));  // save() writes it
}

void Spending::add(const RunId& run, std::uint32_t index, double dollars) {
  // What a node spends for a run that was deleted is nobody's.
  if (!run.empty() && !runs_.all().contains(run)) return;
  Account& its = account(run);
  if (its.unsaved.size() <= index) its.unsaved.resize(index + 1);
  its.unsaved[index] += dollars;
}

void Spending::save() {
  if (now.boot < next_save_ || saved_batch_ > context.persisted) return;
  next_save_ = now.boot + kSaveEvery;
  for (auto& [id, account] : accounts_) {
    // In a fleet without prices, settle() writes what was lost.
    if (account.unsaved.empty() && (account.unsaved_steps == 0 || meters_.empty())) continue;
    write(account);
    saved_batch_ = context.batch + 1;
  }
}

double Spending::dollars(const Run& run) const {
  const auto known = accounts_.find(run.id());
  return known == accounts_.end() ? 0 : sum_of(known->second);
}

double Spending::dollars(const Expert& expert) const {
  const auto known = accounts_.find(RunId(expert.record->run()));
  if (known == accounts_.end()) return 0;
  const std::uint32_t index = expert.record->index();
  return at(known->second.record->dollars(), index) + at(known->second.unsaved, index);
}

double Spending::idle_dollars() const {
  const auto known = accounts_.find(RunId());
  return known == accounts_.end() ? 0 : sum_of(known->second);
}

double Spending::rate(const Run& run) const {
  double rate = 0;
  for (const Expert& expert : run.experts) {
    if (!expert.held()) continue;
    const auto meter = meters_.find(expert.holder());
    if (meter != meters_.end())
      rate += expert.cards() * meter->second.dollars_per_second * kSecondsOfHour;
  }
  return rate;
}

void Spending::lose(const Run& run, Step steps) {
  if (steps > 0) account(run.id()).unsaved_steps += steps;
}

Step Spending::lost_steps(const Run& run) const {
  const auto known = accounts_.find(run.id());
  if (known == accounts_.end()) return 0;
  return known->second.record->lost_steps() + known->second.unsaved_steps;
}

void Spending::forget(const RunId& run) { accounts_.erase(run); }

std::string Spending::load(stored::Spending record) {
  for (const double each : record.dollars()) {
    if (!std::isfinite(each) || each < 0) return "a sum is not a number from 0";
  }
  Account loaded;
  loaded.record = Tracked(std::move(record));
  accounts_.load(std::move(loaded));
  return "";
}

// ---- Budgets ----------------------------------------------------------------

bool Spending::is_spent(const Run& run) const {
  const double most = run.record->spec().budget_dollars();
  return most > 0 && dollars(run) >= most;
}

void Spending::pause_spent(Run& run) {
  const pb::RunSpec& spec = run.record->spec();
  const std::string why = text("its budget of ", human_dollars(spec.budget_dollars()),
                               " is spent; leases end at their next commits; `skerry run budget ",
                               spec.name(), " --dollars N` raises it and lets the run go on");
  runs_.set_wanted(run, stored::WANTED_PAUSED, why);
  run.record.change().set_over_budget(true);
  events_.tell_run(EventKind::kBudget, why, run);
}

Result<void> Spending::change(Run& run, const pb::RunBudget& budget) {
  const double spent = dollars(run);
  if (budget.has_dollars() && budget.dollars() > 0 && budget.dollars() <= spent) {
    return fail(ErrorCode::kInvalid,
                text("budget.dollars: expected more than the ", human_dollars(spent),
                     " that are spent, or 0 for no limit, found ", human_dollars(budget.dollars()),
                     "; `skerry run pause` ends the spending"));
  }
  pb::RunSpec& spec = *run.record.change().mutable_spec();
  if (budget.has_dollars()) spec.set_budget_dollars(budget.dollars());
  if (budget.has_dollars_per_hour()) spec.set_budget_dollars_per_hour(budget.dollars_per_hour());
  if (budget.has_max_node_price()) spec.set_max_node_price(budget.max_node_price());
  const auto limit = [](double dollars) {
    return dollars > 0 ? human_dollars(dollars) : std::string("no limit");
  };
  events_.tell_run(EventKind::kBudget,
                   text("by a person: in all ", limit(spec.budget_dollars()), ", an hour ",
                        limit(spec.budget_dollars_per_hour()), ", of a node an hour ",
                        limit(spec.max_node_price()), "; ", human_dollars(spent), " are spent"),
                   run);
  if (run.record->over_budget() && !is_spent(run)) runs_.resume(run);
  context.must_reschedule = true;
  return {};
}

}  // namespace skerry::coordinator
