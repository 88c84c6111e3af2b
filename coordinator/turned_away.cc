// Who was refused, as events: the first at once, what comes within a minute as one number. However many come, from however
// many places, memory and events stay bounded.
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kTellEvery = std::chrono::minutes(1);
constexpr char kOthers[] = "others";

std::string reason(const std::string& who, const TurnedAway& event) {
  return text(who, ": ", event.why, event.detail.empty() ? "" : ": ", event.detail);
}

}  // namespace

void Machine::turn_away(const TurnedAway& event) {
  const auto key = node_keys.find(event.key);
  const auto known = nodes.find(key == node_keys.end() ? event.node.str() : key->second);
  std::string node = known == nodes.end() ? "" : known->second.record.name();
  std::string who = !node.empty() ? node : event.address.empty() ? "somebody" : event.address;
  auto found = turned_away.find({who, event.why});
  if (found == turned_away.end() && turned_away.size() >= config.turned_away_kinds) {
    who = kOthers;
    node.clear();
    found = turned_away.find({who, event.why});
  }
  if (found != turned_away.end()) {
    ++found->second.more;
    found->second.last = event;
    return;
  }
  turned_away[{who, event.why}] = {now.boot, 0, event};
  tell(kTurnedAway, reason(who, event), node);
}

void Machine::tell_turned_away() {
  for (auto each = turned_away.begin(); each != turned_away.end();) {
    auto& [who, ones] = *each;
    if (now.boot - ones.since < kTellEvery) {
      ++each;
      continue;
    }
    if (ones.more == 0) {
      each = turned_away.erase(each);
      continue;
    }
    const std::string node = node_names.contains(who.first) ? who.first : "";
    tell(kTurnedAway,
         text(reason(who.first, ones.last), ", ", ones.more, ones.more == 1 ? " time" : " times",
              " more within a minute"),
         node);
    ones.since = now.boot;
    ones.more = 0;
    ++each;
  }
}

}  // namespace skerry::coordinator
