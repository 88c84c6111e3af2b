// Who was refused, as events: the first at once, what comes within a minute as one number. However many come, from however
// many places, memory and events stay bounded.
#include "base/clean_text.h"
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr char kOthers[] = "others";

}  // namespace

void Machine::turn_away(const TurnedAway& event) {
  const auto key = node_keys.find(event.key);
  const auto known = nodes.find(key == node_keys.end() ? event.node.str() : key->second);
  std::string node = known == nodes.end() ? "" : known->second.record->name();
  std::string who = !node.empty() ? node : event.address.empty() ? "somebody" : event.address;
  const Repeats& known_ones = repeats[kTurnedAway];
  if (known_ones.size() >= config.turned_away_kinds && !known_ones.contains({who, event.why})) {
    who = kOthers;
    node.clear();
  }
  pb::Event told;
  told.set_kind(kTurnedAway);
  told.set_expert(-1);
  told.set_node(node);
  told.set_reason(clean_text(text(who, ": ", event.why, event.detail.empty() ? "" : ": ", event.detail),
                             protocol::kReasonBytes));
  tell_event(std::move(told), {who, event.why});
}

}  // namespace skerry::coordinator
