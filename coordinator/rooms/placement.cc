// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/placement.h"

#include <algorithm>
#include <map>

namespace skerry::coordinator {
namespace {

class Placer {
 public:
  Placer(const std::vector<PlaceableExpert>& experts, const std::vector<PlaceableNode>& nodes,
         const std::string& own_host, std::size_t experts_of_node)
      : experts_(experts), most_(experts_of_node), result_(experts.size()), hosts_(experts.size()) {
    for (const PlaceableNode& node : nodes)
      nodes_[node.id] = {&node, host_key(node.id, node.host), 0};
    for (std::size_t i = 0; i < experts.size(); ++i) {
      if (!own_host.empty()) hosts_[i].insert(own_host);
      const auto source = nodes_.find(experts[i].source);
      if (source != nodes_.end()) hosts_[i].insert(source->second.host);
    }
  }

  std::vector<Placement> run() {
    for (std::size_t i = 0; i < experts_.size(); ++i) keep(i);
    for (const auto& [id, state] : nodes_) offer(id, state);
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      while (result_[i].copies.size() < experts_[i].copies &&
             (add(i, spares_) || add(i, others_))) {
      }
    }
    for (std::size_t i = 0; i < experts_.size(); ++i) {
      if (experts_[i].wants_spare) stand_by(i);
    }
    return std::move(result_);
  }

 private:
  struct State {
    const PlaceableNode* node = nullptr;
    std::string host;
    std::size_t load = 0;  // experts
  };
  using Offered = std::set<std::pair<std::size_t, NodeId>>;  // load, node

  bool suits(std::size_t i, const State& state) const {
    return !hosts_[i].contains(state.host) && !experts_[i].avoid.contains(state.node->id);
  }

  void keep(std::size_t i) {
    for (const NodeId& id : experts_[i].current) {
      const auto held = nodes_.find(id);
      if (held == nodes_.end() || !held->second.node->may_keep || !suits(i, held->second)) continue;
      if (result_[i].copies.size() >= experts_[i].copies) continue;
      result_[i].copies.push_back(id);
      hosts_[i].insert(held->second.host);
      ++held->second.load;
    }
  }

  void offer(const NodeId& id, const State& state) {
    if (!state.node->may_take || state.load >= most_) return;
    (state.node->is_spare ? spares_ : others_).insert({state.load, id});
  }

  void take(std::size_t i, const NodeId& id) {
    State& state = nodes_.at(id);
    (state.node->is_spare ? spares_ : others_).erase({state.load, id});
    ++state.load;
    offer(id, state);
    hosts_[i].insert(state.host);
  }

  const NodeId* find(std::size_t i, const Offered& offered) const {
    const auto found = std::ranges::find_if(
        offered, [&](const auto& each) { return suits(i, nodes_.at(each.second)); });
    return found == offered.end() ? nullptr : &found->second;
  }

  bool add(std::size_t i, const Offered& offered) {
    const NodeId* const found = find(i, offered);
    if (found == nullptr) return false;
    const NodeId id = *found;
    result_[i].copies.push_back(id);
    take(i, id);
    return true;
  }

  void stand_by(std::size_t i) {
    const auto is_spare = [&](const NodeId& id) { return nodes_.at(id).node->is_spare; };
    const auto copy = std::ranges::find_if(result_[i].copies, is_spare);
    if (copy != result_[i].copies.end()) {
      result_[i].stands_by = *copy;
      return;
    }
    std::optional<NodeId> chosen;
    for (const NodeId& id : experts_[i].current) {
      const auto held = nodes_.find(id);
      if (held != nodes_.end() && held->second.node->may_keep && is_spare(id) &&
          suits(i, held->second))
        chosen = id;
    }
    if (const NodeId* const found = chosen ? nullptr : find(i, spares_)) chosen = *found;
    if (!chosen) return;
    result_[i].spare = result_[i].stands_by = chosen;
    take(i, *chosen);
  }

  const std::vector<PlaceableExpert>& experts_;
  const std::size_t most_;
  std::map<NodeId, State> nodes_;
  std::vector<Placement> result_;
  std::vector<std::set<std::string>>
      hosts_;                // of each expert: those that no further copy may be on
  Offered spares_, others_;  // the least loaded first
};

}  // namespace

std::vector<Placement> place(const std::vector<PlaceableExpert>& experts,
                             const std::vector<PlaceableNode>& nodes, const std::string& own_host,
                             std::size_t experts_of_node) {
  return Placer(experts, nodes, own_host, experts_of_node).run();
}

std::string host_key(const NodeId& node, const std::string& label) {
  return label.empty() ? "node " + node.str() : label;
}

}  // namespace skerry::coordinator
