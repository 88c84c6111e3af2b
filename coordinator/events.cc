#include <limits>

#include "base/planted.h"
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kRepeatsToldEvery = std::chrono::minutes(1);

}  // namespace

std::string number_text(std::uint64_t number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; number >>= 4) digits[i] = kDigits[number & 15];
  return digits;
}

std::string expert_key(const ExpertId& id) {
  return kExpertPrefix + id.run.str() + '/' + number_text(id.index);
}
std::string event_key(std::uint64_t number) { return kEventPrefix + number_text(number); }

void Machine::tell(const std::string& kind, const std::string& reason, const std::string& node,
                   const Expert* expert, std::uint64_t step) {
  pb::Event event;
  event.set_kind(kind);
  event.set_expert(-1);
  event.set_node(node);
  event.set_reason(reason.substr(0, protocol::kReasonBytes));
  event.set_step(step);
  if (expert != nullptr) {
    event.set_run(runs.at(expert->record.run()).record.spec().name());
    event.set_expert(expert->record.index());
    event.set_epoch(expert->record.epoch());
  }
  append(std::move(event));
}

void Machine::tell_run(const std::string& kind, const std::string& reason, const Run& run) {
  pb::Event event;
  event.set_kind(kind);
  event.set_run(run.record.spec().name());
  event.set_expert(-1);
  event.set_reason(reason.substr(0, protocol::kReasonBytes));
  append(std::move(event));
}

void Machine::tell_bounded(Repeats& repeats, const Repeats::key_type& key, std::uint64_t at_once,
                           const char* kind, const std::string& reason, const std::string& node) {
  if (is_to_be_told(repeats, key, at_once, reason, node)) tell(kind, reason, node);
}

// Else it is counted.
bool Machine::is_to_be_told(Repeats& repeats, const Repeats::key_type& key, std::uint64_t at_once,
                            const std::string& reason, const std::string& node) {
  Repeated& ones = repeats.try_emplace(key, Repeated{now.boot, 0, 0, "", ""}).first->second;
  ones.reason = reason;
  ones.node = node;
  if (ones.told == at_once) {
    ++ones.more;
    return false;
  }
  ++ones.told;
  return true;
}

void Machine::tell_counted(Repeats& repeats, const char* kind) {
  for (auto each = repeats.begin(); each != repeats.end();) {
    Repeated& ones = each->second;
    if (now.boot - ones.since < kRepeatsToldEvery) {
      ++each;
    } else if (ones.more == 0) {
      each = repeats.erase(each);
    } else {
      tell(kind,
           text(ones.reason, ", ", ones.more, ones.more == 1 ? " time" : " times", " more within a minute"),
           ones.node);
      ones.since = now.boot;
      ones.more = 0;
      ++each;
    }
  }
}

// What comes often has less room than all events together.
std::size_t Machine::most_of(const std::string& kind) const {
  if (kind == kTurnedAway) return config.turned_away_events;
  if (kind == kTransfer) return config.transfer_events;
  return std::numeric_limits<std::size_t>::max();
}

// Written with the batch of what it tells. The oldest make room, and what comes often for its like.
void Machine::append(pb::Event event) {
  event.set_number(next_event++);
  event.set_unix_ms(now.unix_ms);
  other_writes[event_key(event.number())] = event.SerializeAsString();
  const std::string kind = event.kind();
  ++events_of_kind[kind];
  events.push_back(std::move(event));
  const auto drop_oldest = [&](auto oldest) {
    --events_of_kind[oldest->kind()];
    other_writes[event_key(oldest->number())] = std::nullopt;
    events.erase(oldest);
  };
  if (events_of_kind[kind] > most_of(kind))
    drop_oldest(std::ranges::find_if(events, [&](const auto& e) { return e.kind() == kind; }));
  while (events.size() > config.events && !planted("events_never_trimmed")) drop_oldest(events.begin());
}

AdminResult Machine::event_list(const pb::EventList& request) const {
  const std::size_t limit = request.limit() == 0
                                ? protocol::kPageItems
                                : std::min<std::size_t>(request.limit(), protocol::kPageItems);
  std::string run = request.run();
  if (const auto found = runs.find(run); found != runs.end()) run = found->second.record.spec().name();
  pb::AdminReply reply;
  auto& list = *reply.mutable_events();
  list.set_next(request.after());
  std::size_t bytes = 0;
  auto event = std::upper_bound(events.begin(), events.end(), request.after(),
                                [](std::uint64_t after, const pb::Event& e) { return after < e.number(); });
  for (; event != events.end(); ++event) {
    if (static_cast<std::size_t>(list.events_size()) >= limit || bytes >= config.reply_bytes) break;
    list.set_next(event->number());
    if (!run.empty() && event->run() != run) continue;
    *list.add_events() = *event;
    bytes += event->ByteSizeLong();
  }
  return reply;
}

}  // namespace skerry::coordinator
