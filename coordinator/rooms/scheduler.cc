// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/scheduler.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace skerry::coordinator {
namespace {

double progress(const SchedulableExpert& expert) {
  return static_cast<double>(expert.step) /
         static_cast<double>(std::max<Step>(expert.steps_target, 1));
}

std::string named(const SchedulableExpert& expert) {
  return text("expert ", expert.id.index, " of ", expert.run_name);
}

struct NodeState {
  const SchedulableNode* node = nullptr;
  std::set<std::uint32_t> free;
  std::size_t busy = 0;
};

class Planner {
 public:
  Planner(const std::vector<SchedulableExpert>& experts, const std::vector<SchedulableNode>& nodes)
      : experts_(experts) {
    for (const SchedulableNode& node : nodes) {
      NodeState& state = nodes_[node.id];
      state.node = &node;
      state.free.insert(node.slots.begin(), node.slots.end());
      count(node);
    }
    for (const SchedulableExpert& expert : experts) {
      if (!expert.holder) continue;
      auto held = nodes_.find(expert.holder->node);
      if (held == nodes_.end()) continue;
      held->second.free.erase(expert.holder->slot);
      ++held->second.busy;
    }
    reasons_.resize(experts.size());
    for (const auto& [id, state] : nodes_) offer(id, state);
  }

  Schedule plan() {
    explain_held();
    const std::vector<std::size_t> left = grant_waiting();
    end_turns(left);
    for (std::size_t i = 0; i < experts_.size(); ++i)
      result_.why.push_back({experts_[i].id, reasons_[i]});
    for (const auto& [id, state] : nodes_) {
      if (state.node->usable) result_.spares += state.free.size();
    }
    return std::move(result_);
  }

 private:
  // Leases that must end whatever the turns say, and a word on the others.
  void explain_held() {
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      const SchedulableExpert& expert = experts_[i];
      if (!expert.wanted) reasons_[i] = expert.unwanted_because;
      if (!expert.holder) continue;
      const auto held = nodes_.find(expert.holder->node);
      const std::string holder =
          held == nodes_.end() ? expert.holder->node.str() : held->second.node->name;
      if (!expert.wanted) {
        yield(i, text(expert.unwanted_because, ": ", holder, " gives it back at its next commit"));
      } else if (held != nodes_.end() && held->second.node->draining) {
        yield(i, text(holder, " drains: it gives it back at its next commit"));
      } else {
        reasons_[i] =
            text(holder, " slot ", expert.holder->slot, " trains it: step ", expert.step, " of ",
                 expert.steps_target, ", ", expert.rounds_in_turn, " rounds in this turn");
      }
    }
  }

  void yield(std::size_t i, const std::string& reason) {
    result_.yields.push_back({experts_[i].id, reason});
    reasons_[i] = reason;
    yielding_.insert(i);
  }

  std::vector<std::size_t> waiting() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      if (experts_[i].wanted && !experts_[i].holder) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return progress(experts_[a]) < progress(experts_[b]);
    });
    return order;
  }

  NodeState* choose(const SchedulableExpert& expert) {
    const auto takes = [&](const NodeState& state) {
      return state.node->usable && !state.free.empty() && !expert.avoid.contains(state.node->id);
    };
    const auto last = nodes_.find(expert.last_node);
    if (last != nodes_.end() && takes(last->second)) return &last->second;
    for (const NodeId& id : expert.warm) {
      const auto warm = nodes_.find(id);
      if (warm != nodes_.end() && takes(warm->second)) return &warm->second;
    }
    for (const auto& [busy, id] : offered_) {
      if (NodeState& state = nodes_.at(id); takes(state)) return &state;
    }
    return nullptr;
  }

  // Usable nodes with a free slot, the least busy first.
  void offer(const NodeId& id, const NodeState& state) {
    if (state.node->usable && !state.free.empty()) offered_.insert({state.busy, id});
  }

  void count(const SchedulableNode& node) {
    if (node.usable) {
      ++usable_;
      slots_ += node.slots.size();
    } else if (unusable_.size() < 200) {
      unusable_ += text(unusable_.empty() ? "" : ", ", node.name, " is ", node.unusable_because);
    }
  }

  std::vector<std::size_t> grant_waiting() {
    std::vector<std::size_t> left;
    for (const std::size_t i : waiting()) {
      const SchedulableExpert& expert = experts_[i];
      NodeState* state = choose(expert);
      if (state == nullptr) {
        reasons_[i] = waits_for(expert);
        left.push_back(i);
        continue;
      }
      const SlotId slot{state->node->id, *state->free.begin()};
      offered_.erase({state->busy, slot.node});
      state->free.erase(slot.slot);
      ++state->busy;
      offer(slot.node, *state);
      const bool had_it = slot.node == expert.last_node;
      const bool is_warm = expert.warm.contains(slot.node);
      reasons_[i] = text("goes to ", state->node->name, " slot ", slot.slot, " at step ",
                         expert.step, " of ", expert.steps_target,
                         had_it    ? ", which had it last"
                         : is_warm ? ", which holds its checkpoint"
                                   : ", a free slot");
      result_.grants.push_back({expert.id, slot, reasons_[i]});
    }
    return left;
  }

  std::string waits_for(const SchedulableExpert& expert) const {
    const auto avoided = std::ranges::count_if(expert.avoid, [&](const NodeId& id) {
      const auto known = nodes_.find(id);
      return known != nodes_.end() && known->second.node->usable && !known->second.free.empty();
    });
    if (avoided > 0) {
      return text("waits for another node: ", avoided, avoided == 1 ? " free node" : " free nodes",
                  " gave it up lately");
    }
    if (usable_ == 0) {
      return unusable_.empty() ? "waits for a node: none is connected"
                               : text("waits for a node: none is usable (", unusable_, ")");
    }
    return text("waits for a free node: all ", slots_, slots_ == 1 ? " slot of " : " slots of ",
                usable_, usable_ == 1 ? " node train" : " nodes train",
                unusable_.empty() ? "" : text("; ", unusable_));
  }

  // Holders that are furthest ahead yield to waiting experts that are further
  // behind. A yield is announced a round early, so that a turn of n rounds ends
  // at its n-th commit. By then a holder that is level now is ahead. No turn
  // ends before its first commit: a holder told to yield at its grant would
  // return a lease that it has not begun.
  void end_turns(const std::vector<std::size_t>& left) {
    std::vector<std::size_t> ahead;
    std::size_t coming_free = 0;
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      if (!experts_[i].holder || !on_usable_node(i)) continue;
      if (yielding_.contains(i)) {
        ++coming_free;
      } else if (experts_[i].rounds_in_turn >= 1 &&
                 experts_[i].rounds_in_turn + 1 >= experts_[i].turn_rounds) {
        ahead.push_back(i);
      }
    }
    std::stable_sort(ahead.begin(), ahead.end(), [this](std::size_t a, std::size_t b) {
      return progress(experts_[a]) > progress(experts_[b]);
    });
    for (const std::size_t i : left) {
      if (coming_free > 0) {
        --coming_free;
        continue;
      }
      const auto gives_way = std::find_if(ahead.begin(), ahead.end(), [&](std::size_t holder) {
        return progress(experts_[i]) <= progress(experts_[holder]) &&
               !experts_[i].avoid.contains(experts_[holder].holder->node);
      });
      if (gives_way == ahead.end()) continue;
      yield(*gives_way,
            text("its turn of ", experts_[*gives_way].turn_rounds,
                 " rounds ends at its next commit: ", named(experts_[i]), " is behind (step ",
                 experts_[i].step, " of ", experts_[i].steps_target, ")"));
      reasons_[i] = text("waits its turn: takes over from ", named(experts_[*gives_way]),
                         " at its next commit");
      ahead.erase(gives_way);
    }
  }

  bool on_usable_node(std::size_t i) const {
    const auto held = nodes_.find(experts_[i].holder->node);
    return held != nodes_.end() && held->second.node->usable;
  }

  const std::vector<SchedulableExpert>& experts_;
  std::map<NodeId, NodeState> nodes_;
  std::set<std::pair<std::size_t, NodeId>> offered_;  // busy slots, node
  std::size_t usable_ = 0;
  std::size_t slots_ = 0;  // of the usable
  std::string unusable_;   // the others, named
  std::vector<std::string> reasons_;
  std::set<std::size_t> yielding_;
  Schedule result_;
};

}  // namespace

Schedule schedule(const std::vector<SchedulableExpert>& experts,
                  const std::vector<SchedulableNode>& nodes) {
  return Planner(experts, nodes).plan();
}

}  // namespace skerry::coordinator
