// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/scheduler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr double kCostsToTurn = 40;  // a turn lasts so many times as long as a move costs
constexpr double kTurnGain = 0.5;    // of a turn's work: what a waiting expert has more left
constexpr double kCostsToMove = 3;   // a move gains so many times what it costs, and
constexpr double kMoveGain = 0.1;    // so much of the time that is left
constexpr int kMovesAtOnce = 8;

std::string named(const SchedulableExpert& expert) {
  return text("expert ", expert.id.index, " of ", expert.run_name);
}

std::string human_seconds(double seconds) {
  constexpr double kLongest = 1e9;
  return human_duration(std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kLongest))));
}

// Speeds within a tenth of each other have one level, or neighbouring ones.
int level(double speed) { return static_cast<int>(std::floor(std::log(speed) / std::log(1.1))); }

struct Slot {
  const SchedulableNode* node = nullptr;
  std::uint32_t index = 0;
  std::uint64_t memory_bytes = 0;
  double price = 0;
  std::size_t ordinal = 0;       // among the slots of its node
  std::size_t holder = kNone;    // an expert
  std::size_t reserver = kNone;  // the expert that it is kept for
  // Whose lease has it by measure, beside its own. Nobody holds it: any expert
  // that waits may have it.
  std::size_t borrower = kNone;
  const std::string* device = nullptr;
  bool alone = false;

  SlotId id() const { return {node->id, index}; }
  std::string name() const { return text(node->name, " slot ", index); }
  bool is_free() const { return node->usable && holder == kNone && reserver == kNone; }
};

class Planner {
 public:
  Planner(const std::vector<SchedulableExpert>& experts, const std::vector<SchedulableNode>& nodes,
          const std::vector<SchedulableJob>& jobs)
      : experts_(experts),
        jobs_(jobs),
        best_first_(jobs.size()),
        at_(experts.size(), kNone),
        moves_to_(experts.size(), kNone),
        more_(experts.size()),
        yields_(experts.size(), false),
        charged_(experts.size(), 0),
        cannot_pay_(experts.size(), false),
        reasons_(experts.size()) {
    for (const SchedulableNode& node : nodes) {
      count(node);
      std::vector<std::size_t>& slots = slots_of_[node.id];
      for (const SchedulableSlot& slot : node.slots) {
        slots.push_back(slots_.size());
        slots_.push_back({.node = &node,
                          .index = slot.index,
                          .memory_bytes = slot.memory_bytes,
                          .price = slot.price,
                          .ordinal = slots.size() - 1,
                          .device = &slot.device,
                          .alone = slot.alone});
      }
    }
    for (std::size_t e = 0; e < experts.size(); ++e) {
      rates_.try_emplace(experts[e].id.run, 0);
      if (!experts[e].holder) continue;
      at_[e] = find(*experts[e].holder);
      if (at_[e] == kNone) unpriced_.insert(run_of(e));
      if (at_[e] != kNone) slots_[at_[e]].holder = e;
      find_more(e);
      charge(e, price_held(e));
    }
  }

  Schedule plan() {
    end_unwanted();
    keep_reservations();
    std::vector<std::size_t> left = grant_waiting();
    await_nodes(left);
    const std::vector<std::size_t> waiting = left;
    change_places(left);
    end_turns(left);
    move();
    settle_width(waiting);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      if (reasons_[e].empty()) reasons_[e] = why_held(e);
      const bool holds = at_[e] != kNone && speed(e, at_[e]) > 0;
      result_.why.push_back({experts_[e].id, std::move(reasons_[e]),
                             holds ? seconds_left(e, at_[e]) : -1,
                             at_[e] == kNone ? std::nullopt : std::optional(at_[e])});
      if (moves_to_[e] != kNone)
        result_.reservations.push_back({experts_[e].id, slots_[moves_to_[e]].id()});
    }
    result_.spares = static_cast<std::size_t>(std::ranges::count_if(slots_, &Slot::is_free));
    return std::move(result_);
  }

 private:
  // ---- What is asked of experts and slots

  std::size_t find(const SlotId& id) const {
    const auto node = slots_of_.find(id.node);
    if (node == slots_of_.end()) return kNone;
    for (const std::size_t s : node->second) {
      if (slots_[s].index == id.slot) return s;
    }
    return kNone;
  }
  double speed(std::size_t e, std::size_t s) const { return jobs_[experts_[e].job].speed[s]; }
  bool fits(std::size_t e, std::size_t s) const {
    return slots_[s].node->usable && speed(e, s) > 0 &&
           !experts_[e].avoid.contains(slots_[s].node->id);
  }
  bool is_waiting(std::size_t e) const { return experts_[e].wanted && !experts_[e].holder; }
  // Holds a lease that nothing ends.
  bool trains(std::size_t e) const {
    return experts_[e].wanted && at_[e] != kNone && !yields_[e] && slots_[at_[e]].node->usable;
  }
  // A holder that was told to yield at its grant would give back a lease that
  // it has not begun.
  bool may_yield(std::size_t e) const { return trains(e) && experts_[e].rounds_in_turn > 0; }
  double seconds_left(std::size_t e, std::size_t s) const { return experts_[e].work / pace(e, s); }
  double lacks(std::size_t e, std::size_t s) const {
    const auto known = experts_[e].lacks.find(slots_[s].node->id);
    return known == experts_[e].lacks.end() ? experts_[e].bytes : known->second;
  }
  // Whether its node is known to have all files of the expert.
  bool is_warm(std::size_t e, std::size_t s) const {
    return experts_[e].lacks.contains(slots_[s].node->id) && lacks(e, s) <= 0;
  }
  // Seconds from a grant there to training.
  double cost(std::size_t e, std::size_t s) const { return cost(e, s, lacks(e, s)); }
  double cost(std::size_t e, std::size_t s, double lacks) const {
    return experts_[e].start_seconds + lacks / slots_[s].node->bytes_per_second;
  }
  bool has_less_left(std::size_t a, std::size_t b) const {
    return std::tuple(experts_[a].work, b) < std::tuple(experts_[b].work, a);
  }

  void await_nodes(const std::vector<std::size_t>& left) {
    std::set<std::size_t> jobs;
    for (const std::size_t e : left) {
      if (!cannot_pay_[e]) jobs.insert(experts_[e].job);
    }
    for (const std::size_t job : jobs) {
      for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (jobs_[job].speed[s] > 0) result_.awaited.insert(slots_[s].node->id);
      }
    }
  }

  // ---- What its run pays an hour

  double price(std::size_t s) const { return s == kNone ? 0 : slots_[s].price; }
  // Without what it has by measure: settle_width() looks whether that can be
  // paid beside all else.
  double price_held(std::size_t e) const {
    const auto own =
        std::ranges::count_if(more_[e], [&](std::size_t s) { return slots_[s].holder == e; });
    return price(at_[e]) * static_cast<double>(1 + own);
  }
  const RunId& run_of(std::size_t e) const { return experts_[e].id.run; }
  void charge(std::size_t e, double dollars) {
    rates_[run_of(e)] += dollars - charged_[e];
    charged_[e] = dollars;
  }
  // `leaves`: who gives its slot up for this, or kNone. After a start, holders
  // that have not reconnected yet cost what nobody knows.
  // `cards`: so many slots at the price of this one.
  bool can_pay(std::size_t e, std::size_t s, std::size_t leaves = kNone,
               std::size_t cards = 1) const {
    constexpr double kRounding = 1e-9;
    const double most = experts_[e].dollars_per_hour;
    if (most <= 0) return true;
    double saved = charged_[e];
    if (leaves != kNone && leaves != e && run_of(leaves) == run_of(e)) saved += charged_[leaves];
    const double dollars = price(s) * static_cast<double>(cards);
    // A run that costs too much already still takes turns.
    if (leaves != kNone && dollars <= saved) return true;
    if (unpriced_.contains(run_of(e))) return false;
    return rates_.at(run_of(e)) - saved + dollars <= most * (1 + kRounding);
  }

  // ---- Several cards

  bool is_measured(std::size_t e) const { return experts_[e].cards == 0; }

  // What an expert's lease holds beside its slot, as far as it is still there.
  void find_more(std::size_t e) {
    if (at_[e] == kNone) return;
    for (const std::uint32_t index : experts_[e].more) {
      const std::size_t s = find({experts_[e].holder->node, index});
      if (s == kNone || speed(e, s) <= 0) continue;
      more_[e].push_back(s);
      (is_measured(e) ? slots_[s].borrower : slots_[s].holder) = e;
    }
  }

  // The most cards, `most` or fewer, that the expert's batch is shared by.
  std::size_t shared_by(std::size_t e, std::size_t most) const {
    std::size_t cards = std::max<std::size_t>(1, std::min<std::size_t>(most, experts_[e].batch));
    while (experts_[e].batch % cards != 0) --cards;
    return cards;
  }

  // How many times as fast so many cards like this one are as half of them; 0:
  // not measured.
  double gain(std::size_t e, std::size_t s, std::size_t cards) const {
    const auto& gains = jobs_[experts_[e].job].gains;
    const auto doublings = static_cast<std::size_t>(std::bit_width(cards));
    return doublings < 2 || doublings - 2 >= gains.size() ? 0 : gains[doublings - 2][s];
  }
  // What was not measured is taken to be just worth it. So experts that share a
  // node go where more is free, and there it is measured.
  double gain_over_one(std::size_t e, std::size_t s, std::size_t cards) const {
    double all = 1;
    for (std::size_t doubled = 2; doubled <= cards; doubled *= 2) {
      const double its = gain(e, s, doubled);
      all *= its > 0 ? its : kWorthACard;
    }
    return all;
  }

  // Free slots that a lease which holds `s` may take besides; those that
  // another lease has by measure come last, if at all.
  std::vector<std::size_t> free_beside(std::size_t e, std::size_t s, bool borrowed) const {
    std::vector<std::size_t> found, others;
    if (s == kNone || slots_[s].alone || !slots_[s].node->knows_cards) return found;
    for (const std::size_t beside : slots_of_.at(slots_[s].node->id)) {
      const Slot& slot = slots_[beside];
      if (beside == s || !slot.is_free() || slot.alone || *slot.device != *slots_[s].device ||
          !fits(e, beside) || slot.borrower == e)
        continue;
      (slot.borrower == kNone ? found : others).push_back(beside);
    }
    if (borrowed) found.insert(found.end(), others.begin(), others.end());
    return found;
  }

  // How many cards a lease on this slot should find there at once.
  std::size_t looks_for(std::size_t e, std::size_t s) const {
    const std::size_t two = experts_[e].batch % 2 == 0 ? 2 : 1;
    if (!is_measured(e)) return shared_by(e, experts_[e].cards);
    const double its = gain(e, s, 2);
    return its > 0 && its < kWorthACard ? 1 : two;
  }

  // Operations a second of the expert there, with the further slots that it
  // holds or would find there.
  double pace(std::size_t e, std::size_t s) const {
    if (experts_[e].cards == 1 && more_[e].empty()) return speed(e, s);
    std::size_t cards = s == at_[e] ? 1 + more_[e].size() : 1;
    const std::size_t found = 1 + free_beside(e, s, false).size();
    cards = std::max(cards, std::min(found, looks_for(e, s)));
    return speed(e, s) * gain_over_one(e, s, cards);
  }

  // The most cards, `most` or fewer, that share its batch and that its run pays
  // for; at least one.
  std::size_t affordable(std::size_t e, std::size_t s, std::size_t most) const {
    std::size_t cards = shared_by(e, most);
    while (cards > 1 && !can_pay(e, s, kNone, cards)) cards = shared_by(e, cards - 1);
    return cards;
  }

  // Takes of these, the first ones first, until it holds so many cards.
  void take_more(std::size_t e, const std::vector<std::size_t>& free, std::size_t cards) {
    for (const std::size_t beside : free) {
      if (more_[e].size() + 1 >= cards) break;
      more_[e].push_back(beside);
      slots_[beside].holder = e;
    }
  }

  std::string on_cards(std::size_t e) const {
    return more_[e].empty() ? "" : text(" with ", 1 + more_[e].size(), " cards");
  }

  void count(const SchedulableNode& node) {
    if (node.usable) {
      ++usable_nodes_;
      usable_slots_ += node.slots.size();
    } else if (unusable_.size() < 200) {
      unusable_ += text(unusable_.empty() ? "" : ", ", node.name, " is ", node.unusable_because);
    }
  }

  void yield(std::size_t e, std::string reason) {
    result_.yields.push_back({experts_[e].id, reason});
    reasons_[e] = std::move(reason);
    yields_[e] = true;
  }
  void reserve(std::size_t e, std::size_t s) {
    moves_to_[e] = s;
    slots_[s].reserver = e;
    charge(e, std::max(charged_[e], price(s)));
  }

  // ---- Before all: leases that must end, and what was begun

  void end_unwanted() {
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const SchedulableExpert& expert = experts_[e];
      if (!expert.wanted) reasons_[e] = expert.unwanted_because;
      if (!expert.holder) continue;
      const std::string holder =
          at_[e] == kNone ? expert.holder->node.str() : slots_[at_[e]].node->name;
      if (!expert.wanted) {
        yield(e, text(expert.unwanted_because, ": ", holder, " gives it back at its next commit"));
      } else if (at_[e] != kNone && slots_[at_[e]].node->draining) {
        yield(e, text(holder, " drains: it gives it back at its next commit"));
      }
    }
  }

  // A reserved slot is free, or its holder leaves it. Where that no longer
  // holds, the expert is an ordinary one again.
  void keep_reservations() {
    std::vector<std::size_t> kept;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      if (!experts_[e].reserved || !experts_[e].wanted || yields_[e]) continue;
      const std::size_t s = find(*experts_[e].reserved);
      if (s == kNone || s == at_[e] || !fits(e, s) || slots_[s].reserver != kNone ||
          !can_pay(e, s, slots_[s].holder))
        continue;
      reserve(e, s);
      kept.push_back(e);
    }
    const auto is_broken = [&](std::size_t e) {
      const std::size_t holder = slots_[moves_to_[e]].holder;
      return holder != kNone && !yields_[holder] && moves_to_[holder] == kNone;
    };
    for (bool all_hold = false; !all_hold;) {
      all_hold = true;
      for (std::size_t e : kept) {
        if (moves_to_[e] == kNone || !is_broken(e)) continue;
        slots_[moves_to_[e]].reserver = kNone;
        moves_to_[e] = kNone;
        charge(e, price_held(e));
        all_hold = false;
      }
    }
    for (std::size_t e : kept) {
      if (moves_to_[e] != kNone && at_[e] != kNone)
        yield(e, text("moves to ", slots_[moves_to_[e]].name(), " at its next commit"));
    }
  }

  // ---- 1. Who waits

  // The job's slots, the best first, apart from what is warm for whom.
  struct BestFirst {
    std::vector<std::size_t> slots;
    std::size_t taken = 0;  // no slot before this one is free
    bool is_made = false;
  };
  BestFirst& best_first(std::size_t job) {
    BestFirst& order = best_first_[job];
    if (std::exchange(order.is_made, true)) return order;
    using Key = std::tuple<int, std::uint64_t, std::size_t, std::size_t>;
    std::vector<Key> keys;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const double its = jobs_[job].speed[s];
      if (its > 0 && slots_[s].node->usable)
        keys.emplace_back(-level(its), slots_[s].memory_bytes, slots_[s].ordinal, s);
    }
    std::ranges::sort(keys);
    for (const Key& key : keys) order.slots.push_back(std::get<3>(key));
    return order;
  }

  // A slot beside which there are as many as the expert looks for comes first,
  // and last one that another lease has by measure.
  std::size_t best_free(std::size_t e) {
    const std::uint32_t cards = experts_[e].cards;
    std::size_t s = cards == 1 ? kNone : best_free(e, true, false);
    if (s == kNone && cards > 1) s = best_free(e, true, true);
    if (s == kNone) s = best_free(e, false, false);
    return s == kNone ? best_free(e, false, true) : s;
  }

  std::size_t best_free(std::size_t e, bool wide, bool borrowed) {
    BestFirst& order = best_first(experts_[e].job);
    while (order.taken < order.slots.size() && !slots_[order.slots[order.taken]].is_free())
      ++order.taken;
    const auto may_have = [&](std::size_t s) {
      return slots_[s].is_free() && (borrowed || slots_[s].borrower == kNone) && fits(e, s) &&
             can_pay(e, s) && (!wide || 1 + free_beside(e, s, borrowed).size() >= looks_for(e, s));
    };
    const auto found = std::find_if(order.slots.begin() + static_cast<std::ptrdiff_t>(order.taken),
                                    order.slots.end(), may_have);
    if (found == order.slots.end()) return kNone;
    const auto as_fast_of = [&](const NodeId& node) {
      const auto known = slots_of_.find(node);
      if (known == slots_of_.end()) return kNone;
      const auto its = std::ranges::find_if(known->second, [&](std::size_t s) {
        return may_have(s) && level(speed(e, s)) == level(speed(e, *found));
      });
      return its == known->second.end() ? kNone : *its;
    };
    for (const auto& [node, lacks] : experts_[e].lacks) {
      if (lacks > 0) continue;
      if (const std::size_t s = as_fast_of(node); s != kNone) return s;
    }
    const std::size_t s = experts_[e].stands_by ? as_fast_of(*experts_[e].stands_by) : kNone;
    return s == kNone ? *found : s;
  }

  void grant(std::size_t e, std::size_t s, const char* why) {
    slots_[s].holder = e;
    slots_[s].reserver = kNone;
    moves_to_[e] = kNone;
    if (experts_[e].cards > 1) {
      const std::vector<std::size_t> free = free_beside(e, s, /*borrowed=*/true);
      take_more(e, free, affordable(e, s, std::min(looks_for(e, s), 1 + free.size())));
    }
    charge(e, price(s) * static_cast<double>(1 + more_[e].size()));
    reasons_[e] = text("goes to ", slots_[s].name(), on_cards(e), " at step ", experts_[e].step,
                       " of ", experts_[e].steps_target, ", ", why);
    result_.grants.push_back(
        {experts_[e].id, slots_[s].id(), reasons_[e], indices(more_[e]), lacks(e, s)});
  }

  // RETURNS: those that got nothing and have nothing reserved.
  std::vector<std::size_t> grant_waiting() {
    std::vector<std::size_t> order, left;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      if (is_waiting(e)) order.push_back(e);
    }
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return has_less_left(b, a); });
    for (const std::size_t e : order) {
      if (const std::size_t s = moves_to_[e]; s != kNone) {
        if (slots_[s].holder == kNone && can_pay(e, s)) {
          grant(e, s, "which was kept for it");
        } else if (slots_[s].holder == kNone) {
          reasons_[e] = text("waits for ", slots_[s].name(), ", which its run cannot pay yet");
        } else {
          reasons_[e] = text("waits for ", slots_[s].name(), ", which ",
                             named(experts_[slots_[s].holder]), " leaves at its next commit");
        }
        continue;
      }
      const std::size_t s = best_free(e);
      if (s == kNone) {
        reasons_[e] = waits_for(e);
        left.push_back(e);
      } else {
        grant(e, s,
              is_warm(e, s)                                 ? "which holds its checkpoint"
              : experts_[e].stands_by == slots_[s].node->id ? "which stands by for it"
                                                            : "the best free slot");
      }
    }
    return left;
  }

  std::string waits_for(std::size_t e) {
    std::size_t avoided = 0, too_small = 0, too_dear = 0;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      if (!slots_[s].node->usable) continue;
      too_small += speed(e, s) <= 0;
      avoided += slots_[s].is_free() && speed(e, s) > 0 && !fits(e, s);
      too_dear += slots_[s].is_free() && fits(e, s);  // else it had got it
    }
    if (too_dear > 0) {
      cannot_pay_[e] = true;
      if (unpriced_.contains(run_of(e)))
        return "waits for its budget: a holder of its run has not reconnected yet, and what it "
               "costs is unknown";
      return text("waits for its budget: ", too_dear,
                  too_dear == 1 ? " slot is free, but it" : " slots are free, but each",
                  " would make the run cost more than ", experts_[e].dollars_per_hour,
                  " dollars an hour (budget.dollars_per_hour); it costs ", rates_.at(run_of(e)));
    }
    if (avoided > 0) {
      return text("waits for another node: ", avoided, avoided == 1 ? " free slot" : " free slots",
                  " gave it up lately");
    }
    if (usable_nodes_ == 0) {
      return unusable_.empty() ? "waits for a node: none is connected"
                               : text("waits for a node: none is usable (", unusable_, ")");
    }
    if (too_small == usable_slots_) {
      return text("waits for a larger card: it needs ", jobs_[experts_[e].job].needs,
                  ", and none of ", usable_slots_, usable_slots_ == 1 ? " slot has" : " slots has",
                  " that");
    }
    return text("waits for a free node: all ", usable_slots_ - too_small,
                too_small > 0 ? " slots that fit it train"
                              : text(usable_slots_ == 1 ? " slot of " : " slots of ", usable_nodes_,
                                     usable_nodes_ == 1 ? " node train" : " nodes train"),
                too_small > 0 ? text("; it needs ", jobs_[experts_[e].job].needs) : "",
                unusable_.empty() ? "" : text("; ", unusable_));
  }

  // Only held slots fit it, and a holder fits a free one.
  void change_places(std::vector<std::size_t>& left) {
    if (std::ranges::none_of(slots_, &Slot::is_free)) return;
    std::erase_if(left, [&](std::size_t e) {
      std::size_t chosen = kNone;
      for (std::size_t s = 0; s < slots_.size(); ++s) {
        const std::size_t holder = slots_[s].holder;
        if (holder == kNone || at_[holder] != s || !fits(e, s) || slots_[s].reserver != kNone ||
            !may_yield(holder))
          continue;
        if (chosen != kNone && !has_less_left(holder, chosen)) continue;
        if (best_free(holder) != kNone && can_pay(e, s)) chosen = holder;
      }
      if (chosen == kNone) return false;
      const std::size_t from = at_[chosen], to = best_free(chosen);
      reserve(chosen, to);
      reserve(e, from);
      yield(chosen,
            text("moves to ", slots_[to].name(), " at its next commit: ", slots_[from].name(),
                 " is wanted by ", named(experts_[e]), ", which fits no free slot"));
      reasons_[e] = text("waits for ", slots_[from].name(), ", which ", named(experts_[chosen]),
                         " leaves at its next commit");
      return true;
    });
  }

  // ---- 2. Turns

  double turn_seconds(std::size_t e) const {
    const SchedulableExpert& expert = experts_[e];
    if (expert.turn_rounds > 0)
      return expert.seconds_in_turn * expert.turn_rounds / std::max(1U, expert.rounds_in_turn);
    return std::max(expert.turn_seconds, kCostsToTurn * cost(e, at_[e], expert.bytes));
  }
  // A yield is announced a round early, so that a turn of n rounds ends at its
  // n-th commit.
  bool is_turn_over(std::size_t e) const {
    const SchedulableExpert& expert = experts_[e];
    if (expert.turn_rounds > 0) return expert.rounds_in_turn + 1 >= expert.turn_rounds;
    return expert.seconds_in_turn >= turn_seconds(e);
  }

  void end_turns(const std::vector<std::size_t>& left) {
    std::vector<std::size_t> holders, coming_free;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      if (at_[e] == kNone || !slots_[at_[e]].node->usable) continue;
      if (yields_[e] && slots_[at_[e]].reserver == kNone) coming_free.push_back(at_[e]);
      if (may_yield(e) && is_turn_over(e)) holders.push_back(e);
    }
    // Who was told to give way goes on to: else each commit of another would
    // make that one the next, and nobody's turn would end.
    std::ranges::sort(holders, [&](std::size_t a, std::size_t b) {
      if (experts_[a].yields != experts_[b].yields) return experts_[a].yields;
      return has_less_left(a, b);
    });
    for (const std::size_t e : left) {
      const auto its = std::ranges::find_if(coming_free, [&](std::size_t s) {
        return fits(e, s) && can_pay(e, s, slots_[s].holder);
      });
      if (its != coming_free.end()) {
        coming_free.erase(its);
        continue;
      }
      const auto gives_way = std::ranges::find_if(holders, [&](std::size_t holder) {
        const double turns_work = turn_seconds(holder) * speed(holder, at_[holder]);
        return fits(e, at_[holder]) && can_pay(e, at_[holder], holder) &&
               experts_[e].work - experts_[holder].work >= kTurnGain * turns_work;
      });
      if (gives_way == holders.end()) continue;
      const SchedulableExpert& holder = experts_[*gives_way];
      yield(*gives_way,
            text("its turn of ",
                 holder.turn_rounds > 0 ? text(holder.turn_rounds, " rounds")
                                        : human_seconds(holder.seconds_in_turn),
                 " ends at its next commit: ", named(experts_[e]), " has more left (step ",
                 experts_[e].step, " of ", experts_[e].steps_target, ")"));
      reasons_[e] = text("waits its turn: takes over from ", named(holder), " at its next commit");
      holders.erase(gives_way);
    }
  }

  // ---- 3. Moves

  void move() {
    std::vector<double> ends(experts_.size(), -1);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      if (trains(e) && speed(e, at_[e]) > 0) ends[e] = seconds_left(e, at_[e]);
    }
    for (int moves = 0; moves < kMovesAtOnce; ++moves) {
      const auto last = std::ranges::max_element(ends);
      if (last == ends.end() || *last < 0) return;
      const auto e = static_cast<std::size_t>(last - ends.begin());
      if (!may_yield(e) || slots_[at_[e]].reserver != kNone) return;
      std::size_t to = kNone;
      double best = 0;
      for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (!fits(e, s) || pace(e, s) <= pace(e, at_[e]) || slots_[s].reserver != kNone ||
            !can_pay(e, s, slots_[s].holder))
          continue;
        double end = seconds_left(e, s);
        if (const std::size_t other = slots_[s].holder; other != kNone) {
          if (at_[other] != s || !may_yield(other) || !fits(other, at_[e]) ||
              !can_pay(other, at_[e], e))
            continue;
          end = std::max(end, seconds_left(other, at_[e]));
        }
        end += cost(e, s);
        if (to == kNone || end < best) {
          to = s;
          best = end;
        }
      }
      if (to == kNone || *last - best < std::max(kCostsToMove * cost(e, to), kMoveGain * *last))
        return;
      const std::size_t from = at_[e], other = slots_[to].holder;
      const std::string gain = text(" at its next commit: the last to end would end ",
                                    human_seconds(*last - best), " sooner");
      reserve(e, to);
      yield(e, text("moves to ", slots_[to].name(), gain));
      ends[e] = seconds_left(e, to) + cost(e, to);
      if (other == kNone) continue;
      reserve(other, from);
      yield(other, text("changes places with ", named(experts_[e]), gain));
      ends[other] = seconds_left(other, from) + cost(other, from);
    }
  }

  // ---- 4. Width

  std::vector<std::uint32_t> indices(const std::vector<std::size_t>& slots) const {
    std::vector<std::uint32_t> all;
    for (const std::size_t s : slots) all.push_back(slots_[s].index);
    return all;
  }

  void settle_width(const std::vector<std::size_t>& waiting) {
    std::vector<std::size_t> order;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      if (at_[e] == kNone || (experts_[e].cards == 1 && experts_[e].more.empty())) continue;
      keep_more(e);
      order.push_back(e);
    }
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return has_less_left(b, a); });
    for (const std::size_t e : order) {
      std::string reason = slots_wanted_[e];
      if (may_widen(e)) reason = change_width(e, waiting, std::move(reason));
      std::vector<std::uint32_t> more = indices(more_[e]);
      if (more == experts_[e].more) continue;
      if (reason.empty()) reason = "a slot of its node is gone";
      result_.resizes.push_back({experts_[e].id, std::move(more),
                                 text("goes on with ", 1 + more_[e].size(),
                                      more_[e].empty() ? " card: " : " cards: ", reason)});
    }
  }

  // What nobody took of it.
  void keep_more(std::size_t e) {
    std::vector<std::size_t> kept;
    for (const std::size_t s : more_[e]) {
      Slot& slot = slots_[s];
      const bool has = std::exchange(slot.borrower, kNone) == e;
      const std::size_t taken_by = slot.holder != kNone ? slot.holder : slot.reserver;
      if (has && taken_by != kNone) {
        slots_wanted_[e] = text(slot.name(), " is wanted by ", named(experts_[taken_by]));
        continue;
      }
      slot.holder = e;
      kept.push_back(s);
    }
    more_[e] = std::move(kept);
    std::size_t most = 1 + more_[e].size();
    if (!is_measured(e)) most = std::min<std::size_t>(most, experts_[e].cards);
    std::size_t cards = shared_by(e, is_measured(e) ? std::bit_floor(most) : most);
    while (is_measured(e) && cards > 1 && !unpriced_.contains(run_of(e)) &&
           !can_pay(e, at_[e], kNone, cards)) {
      cards /= 2;
      slots_wanted_[e] = "its run cannot pay for more (budget.dollars_per_hour)";
    }
    leave_more(e, cards);
  }

  void leave_more(std::size_t e, std::size_t cards) {
    for (; more_[e].size() + 1 > cards; more_[e].pop_back()) slots_[more_[e].back()].holder = kNone;
    charge(e, std::max(price_held(e), price(moves_to_[e])));
  }

  bool may_widen(std::size_t e) const {
    return experts_[e].cards != 1 && experts_[e].at_commit && trains(e) && moves_to_[e] == kNone;
  }

  // RETURNS: why its lease has other slots from here on.
  std::string change_width(std::size_t e, const std::vector<std::size_t>& waiting,
                           std::string reason) {
    const std::size_t s = at_[e], cards = 1 + more_[e].size();
    const double gained = gain(e, s, cards);
    if (is_measured(e) && gained > 0 && gained < kWorthACard &&
        experts_[e].rounds_of_width >= kRoundsToMeasure) {
      leave_more(e, cards / 2);
      constexpr double kHundred = 100;
      return text(cards, " cards train ", std::round(gained * kHundred) / kHundred,
                  " times as fast as ", cards / 2, ", less than the ", kWorthACard,
                  " times that they must");
    }
    std::vector<std::size_t> free = free_beside(e, s, /*borrowed=*/false);
    std::erase_if(free, [&](std::size_t beside) {
      return std::ranges::any_of(waiting, [&](std::size_t w) { return fits(w, beside); });
    });
    std::size_t wider = std::min<std::size_t>(experts_[e].cards, cards + free.size());
    if (is_measured(e)) {
      const double its = gain(e, s, 2 * cards);
      const bool tries = its <= 0 ? cards == 1 || gained >= kWorthACard : its >= kWorthACard;
      wider = tries && experts_[e].batch % (2 * cards) == 0 && free.size() >= cards ? 2 * cards : 0;
    }
    wider = affordable(e, s, wider);
    if (wider <= cards) return reason;
    if (is_measured(e) && wider != 2 * cards) return reason;
    take_more(e, free, wider);
    charge(e, price_held(e));
    return is_measured(e) ? "no expert waits for what is free on its node"
                          : "they are free on its node";
  }

  std::string why_held(std::size_t e) const {
    const SchedulableExpert& expert = experts_[e];
    return text(at_[e] == kNone ? expert.holder->node.str() : slots_[at_[e]].name(), " trains it",
                on_cards(e), ": step ", expert.step, " of ", expert.steps_target, ", ",
                expert.rounds_in_turn, " rounds in this turn");
  }

  const std::vector<SchedulableExpert>& experts_;
  const std::vector<SchedulableJob>& jobs_;
  std::vector<Slot> slots_;
  std::map<NodeId, std::vector<std::size_t>> slots_of_;
  std::vector<BestFirst> best_first_;  // by job
  std::vector<std::size_t> at_;        // by expert: the slot that it holds
  std::vector<std::size_t> moves_to_;  // by expert: the slot that is kept for it
  // By expert: the slots that it holds besides, or has by measure.
  std::vector<std::vector<std::size_t>> more_;
  std::map<std::size_t, std::string> slots_wanted_;  // by expert that gives one up: by whom
  std::vector<bool> yields_;
  std::vector<double> charged_;    // by expert, an hour: of its slots, or of the dearer of two
  std::map<RunId, double> rates_;  // the sum of these
  std::set<RunId> unpriced_;       // a holder's slot is not known yet
  std::vector<bool> cannot_pay_;   // by expert: slots are free that it cannot pay for
  std::vector<std::string> reasons_;
  std::size_t usable_nodes_ = 0;
  std::size_t usable_slots_ = 0;
  std::string unusable_;  // the other nodes, named
  Schedule result_;
};

}  // namespace

Schedule schedule(const std::vector<SchedulableExpert>& experts,
                  const std::vector<SchedulableNode>& nodes,
                  const std::vector<SchedulableJob>& jobs) {
  return Planner(experts, nodes, jobs).plan();
}

}  // namespace skerry::coordinator
