// SPDX-License-Identifier: Apache-2.0
// The coordinator's rooms, each built with the rooms that it may call.
// docs/internals/coordinator.md draws the dependencies.
//
// Admin requests read `const Rooms&` and change state only through the rooms'
// methods.
#pragma once

#include "coordinator/rooms/leases.h"

namespace skerry::coordinator {

struct Rooms : Context {
  using Context::Context;

  Runs runs{*this};
  EventLog events{*this, runs};
  Roster roster{*this, events, runs};
  Objects objects{*this, events, roster.peers()};
  Datasets datasets{*this, events, runs, objects};
  Copies copies{*this, events, runs, roster, objects};
  Adoptions adoptions{*this, events, runs, roster, objects, datasets, copies};
  Speeds speeds{*this};
  Spending spending{*this, events, runs, roster};
  History history{*this};
  Commits commits{*this,    events, runs,      roster, objects,
                  datasets, copies, adoptions, speeds, history};
  Leases leases{*this, events, runs, roster, datasets, copies, commits, speeds, spending};
  std::int64_t started_unix_ms = 0;
};

}  // namespace skerry::coordinator
