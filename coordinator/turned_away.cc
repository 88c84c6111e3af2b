// Who was refused, as events: the first at once, what comes within a minute as one number. However many come, from however
// many places, memory and events stay bounded.
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {
namespace {

constexpr char kOthers[] = "others";

}  // namespace

void Machine::turn_away(const TurnedAway& event) {
  const auto key = node_keys.find(event.key);
  const auto known = nodes.find(key == node_keys.end() ? event.node.str() : key->second);
  std::string node = known == nodes.end() ? "" : known->second.record.name();
  std::string who = !node.empty() ? node : event.address.empty() ? "somebody" : event.address;
  if (turned_away.size() >= config.turned_away_kinds && !turned_away.contains({who, event.why})) {
    who = kOthers;
    node.clear();
  }
  tell_bounded(turned_away, {who, event.why}, 1, kTurnedAway,
               text(who, ": ", event.why, event.detail.empty() ? "" : ": ", event.detail), node);
}

}  // namespace skerry::coordinator
