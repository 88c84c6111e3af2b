// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/events.h"

#include <algorithm>
#include <limits>

#include "base/clean_text.h"
#include "base/text.h"
#include "coordinator/core/keys.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr char kOthers[] = "others";
constexpr Duration kRepeatsToldEvery = std::chrono::minutes(1);

// What a node can cause, and how often in a minute one node is an event each by
// it. Beyond that they are counted.
struct Bound {
  EventKind kind;
  std::uint64_t each_minute;
};
constexpr std::uint64_t kOften = 6'000;  // a commit needs a checkpoint that is whole on this disk
constexpr std::uint64_t kLeases = 200;   // a node has up to 64 slots
constexpr std::uint64_t kSeldom = 20;
constexpr Bound kBounds[] = {
    {EventKind::kCommitted, kOften},
    {EventKind::kEnrolled, kLeases},  // by one token
    {EventKind::kExpertDone, kLeases},
    {EventKind::kGranted, kLeases},
    {EventKind::kLeaseLost, kLeases},
    {EventKind::kLeaseResumed, kLeases},
    {EventKind::kLeaseReturned, kLeases},
    {EventKind::kDiskFull, kSeldom},  // by commits that claim to be large
    {EventKind::kDiskRoom, kSeldom},
    {EventKind::kDrained, kSeldom},
    {EventKind::kEngineFailed, kSeldom},
    {EventKind::kFenced, kSeldom},
    {EventKind::kGenerationRaised, kSeldom},
    {EventKind::kNodeLeft, kSeldom},
    {EventKind::kNodeLost, kSeldom},
    {EventKind::kNotice, kSeldom},
    {EventKind::kRefused, kSeldom},
    {EventKind::kReplicaStalled, kSeldom},
    {EventKind::kRunState, kSeldom},  // of one run
    {EventKind::kTransfer, kSeldom},
    {EventKind::kNodeJoined, 10},
    {EventKind::kPeerFault, 5},
    {EventKind::kTurnedAway, 1},  // of one kind
};

const Bound* bound_of(EventKind kind) {
  const auto* const found = std::ranges::find(kBounds, kind, &Bound::kind);
  return found == std::end(kBounds) ? nullptr : found;
}

pb::Event event_of(EventKind kind, const std::string& reason, const std::string& node) {
  pb::Event event;
  event.set_kind(to_string(kind));
  event.set_expert(-1);
  event.set_node(node);
  event.set_reason(clean_text(reason, protocol::kReasonBytes));
  return event;
}

}  // namespace

std::string number_text(std::uint64_t number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; number >>= 4) digits[i] = kDigits[number & 15];
  return digits;
}

void EventLog::tell(EventKind kind, const std::string& reason, const std::string& node,
                    const Expert* expert, std::uint64_t step) {
  pb::Event event = event_of(kind, reason, node);
  event.set_step(step);
  if (expert != nullptr) {
    event.set_run(runs_.of(*expert).record->spec().name());
    event.set_expert(expert->record->index());
    event.set_epoch(expert->record->epoch());
  }
  tell_event(kind, std::move(event), {node, ""});
}

void EventLog::tell_run(EventKind kind, const std::string& reason, const Run& run) {
  pb::Event event = event_of(kind, reason, "");
  event.set_run(run.record->spec().name());
  tell_event(kind, std::move(event), {run.record->spec().name(), ""});
}

void EventLog::tell_of(EventKind kind, const std::string& reason, const std::string& node,
                       const std::string& who) {
  tell_event(kind, event_of(kind, reason, node), {who, ""});
}

void EventLog::turn_away(std::string who, const std::string& why, const std::string& detail,
                         std::string node) {
  const auto& known = repeats_[EventKind::kTurnedAway];
  if (known.size() >= config.turned_away_kinds && !known.contains({who, why})) {
    who = kOthers;
    node.clear();
  }
  const std::string reason = text(who, ": ", why, detail.empty() ? "" : ": ", detail);
  tell_event(EventKind::kTurnedAway, event_of(EventKind::kTurnedAway, reason, node), {who, why});
}

// Every event comes this way. One that `who` causes without end is counted once
// the kind's bound for a minute is reached.
void EventLog::tell_event(EventKind kind, pb::Event event, const Who& who) {
  const Bound* const bound = bound_of(kind);
  if (bound != nullptr) {
    Repeated& ones = repeats_[kind].try_emplace(who, Repeated{.since = now.boot}).first->second;
    ones.reason = event.reason();
    ones.node = event.node();
    ones.run = event.node().empty() ? event.run() : "";
    if (ones.told >= bound->each_minute) {
      ++ones.more;
      return;
    }
    ++ones.told;
  }
  append(kind, std::move(event));
}

void EventLog::tell_counted() {
  for (auto& [kind, ones_of_kind] : repeats_) {
    for (auto each = ones_of_kind.begin(); each != ones_of_kind.end();) {
      Repeated& ones = each->second;
      if (now.boot - ones.since < kRepeatsToldEvery) {
        ++each;
      } else if (ones.more == 0) {
        each = ones_of_kind.erase(each);
      } else {
        pb::Event event;
        event.set_kind(to_string(kind));
        event.set_expert(-1);
        event.set_node(ones.node);
        event.set_run(ones.run);
        const std::string many =
            text(", ", ones.more, ones.more == 1 ? " time" : " times", " more within a minute");
        event.set_reason(clean_text(ones.reason, protocol::kReasonBytes - many.size()) + many);
        append(kind, std::move(event));
        ones.since = now.boot;
        ones.more = 0;
        ++each;
      }
    }
  }
}

// What comes often has less room than all events together.
std::size_t EventLog::most_of(EventKind kind) const {
  if (kind == EventKind::kTurnedAway) return config.turned_away_events;
  if (kind == EventKind::kTransfer) return config.transfer_events;
  if (kind == EventKind::kRunState) return config.run_state_events;
  if (kind == EventKind::kEnrolled) return config.enrolled_events;
  return std::numeric_limits<std::size_t>::max();
}

// Written with the batch of what it tells. The oldest make room: what comes
// often for its like, a node's for its own.
void EventLog::append(EventKind kind, pb::Event event) {
  event.set_number(next_++);
  event.set_unix_ms(now.unix_ms);
  changes_.add(event.number());
  const std::string word = event.kind();
  const std::string node = event.node();
  count(event, 1);
  events_.push_back(std::move(event));
  const auto drop_oldest = [&](auto oldest) {
    count(*oldest, -1);
    changes_.add(oldest->number());
    events_.erase(oldest);
  };
  if (of_kind_[word] > most_of(kind))
    drop_oldest(std::ranges::find_if(events_, [&](const auto& e) { return e.kind() == word; }));
  if (!node.empty() && of_node_[node] > config.events_of_node)
    drop_oldest(std::ranges::find_if(events_, [&](const auto& e) { return e.node() == node; }));
  while (events_.size() > config.events) drop_oldest(events_.begin());
}

void EventLog::count(const pb::Event& event, int by) {
  const auto add = [by](std::map<std::string, std::size_t>& counts, const std::string& key) {
    std::size_t& count = counts[key];
    count += static_cast<std::size_t>(by);
    if (count == 0) counts.erase(key);
  };
  add(of_kind_, event.kind());
  if (!event.node().empty()) add(of_node_, event.node());
}

Result<pb::AdminReply> EventLog::list(const pb::EventList& request) const {
  const std::size_t limit = request.limit() == 0
                                ? protocol::kPageItems
                                : std::min<std::size_t>(request.limit(), protocol::kPageItems);
  const auto by_id = runs_.all().find(RunId(request.run()));
  const std::string& run =
      by_id == runs_.all().end() ? request.run() : by_id->second.record->spec().name();
  pb::AdminReply reply;
  auto& list = *reply.mutable_events();
  list.set_next(request.after());
  std::size_t bytes = 0;
  auto event =
      std::upper_bound(events_.begin(), events_.end(), request.after(),
                       [](std::uint64_t after, const pb::Event& e) { return after < e.number(); });
  for (; event != events_.end(); ++event) {
    if (static_cast<std::size_t>(list.events_size()) >= limit || bytes >= config.reply_bytes) break;
    list.set_next(event->number());
    if (!run.empty() && event->run() != run) continue;
    *list.add_events() = *event;
    bytes += event->ByteSizeLong();
  }
  return reply;
}

const pb::Event* EventLog::find(std::uint64_t number) const {
  const auto found =
      std::ranges::lower_bound(events_, number, {}, [](const pb::Event& e) { return e.number(); });
  return found != events_.end() && found->number() == number ? &*found : nullptr;
}

std::string EventLog::load(pb::Event event) {
  if (!events_.empty() && event.number() <= events_.back().number())
    return "events are out of order";
  next_ = event.number() + 1;
  count(event, 1);
  events_.push_back(std::move(event));
  return "";
}

}  // namespace skerry::coordinator
