// SPDX-License-Identifier: Apache-2.0
// The event log that people read. New events evict the oldest.
//
// Invariant: event numbers grow and are never reused. Config limits the events
// in all, of one kind, and of one node. Events that a peer can cause without
// end are only counted above their kind's limit for a minute. The log reports
// the count when the minute is over.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "coordinator/rooms/event_kinds.h"
#include "coordinator/rooms/runs.h"

namespace skerry::coordinator {

class EventLog : Room {
 public:
  // LIFETIME: `runs` outlives the log.
  EventLog(Context& the_context, const Runs& runs) : Room(the_context), runs_(runs) {}

  void tell(EventKind kind, const std::string& reason, const std::string& node = "",
            const Expert* expert = nullptr, std::uint64_t step = 0);
  void tell_run(EventKind kind, const std::string& reason, const Run& run);
  // Counts by `who` instead of by node.
  void tell_of(EventKind kind, const std::string& reason, const std::string& node,
               const std::string& who);
  // Logs that `who` was refused because of `why`, one of a few phrases. `node`
  // may be empty. Memory and events stay bounded at any number of refusals.
  void turn_away(std::string who, const std::string& why, const std::string& detail,
                 std::string node);
  // Logs the counts whose minute is over.
  void tell_counted();

  Result<pb::AdminReply> list(const pb::EventList& request) const;

  // RETURNS: what is wrong; empty if nothing is.
  std::string load(pb::Event event);

 private:
  struct Repeated {
    Duration since{};
    std::uint64_t told = 0;
    std::uint64_t more = 0;
    std::string reason;  // of the last
    std::string node;    // or run
    std::string run;
  };
  using Who = std::pair<std::string, std::string>;  // and why

  void tell_event(EventKind kind, pb::Event event, const Who& who);
  void append(EventKind kind, pb::Event event);
  void count(const pb::Event& event, int by);
  std::size_t most_of(EventKind kind) const;
  const pb::Event* find(std::uint64_t number) const;

  const Runs& runs_;
  std::deque<pb::Event> events_;
  Changes<std::uint64_t> changes_{context.journal, Kind::kEvent,
                                  [this](std::uint64_t number) { return find(number); }};
  std::uint64_t next_ = 1;
  std::map<std::string, std::size_t> of_kind_;  // of events_
  std::map<std::string, std::size_t> of_node_;  // of those that name one
  std::map<EventKind, std::map<Who, Repeated>> repeats_;
};

}  // namespace skerry::coordinator
