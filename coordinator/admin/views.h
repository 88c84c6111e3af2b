// SPDX-License-Identifier: Apache-2.0
// What is read of all rooms together.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/rooms.h"

namespace skerry::coordinator {

// By name or id. ON FAILURE: kNotFound; kConflict if only records know the run.
Result<const Run*> find_run(const Rooms& rooms, const std::string& name);
pb::RunInfo run_info(const Rooms& rooms, const Run& run, bool with_experts);
// What stays as it is while a run goes on.
pb::EnsembleReply about(const Rooms& rooms, const Run& run);

// ---- Of objects
// RETURNS: what is wrong with it and what repairs it; empty: nothing is, or
// nothing names it.
std::string trouble_of(const Rooms& rooms, const Hash& manifest);
// Why this run cannot go on or be fetched, as `run why` says it.
std::vector<std::string> damages(const Rooms& rooms, const Run& run);
// Tells everybody whose work the object's damage holds up, or its repair.
void tell_of_object(Rooms& rooms, const std::string& kind, const Hash& manifest);

// ---- For the host (core.h)
std::vector<NamedObject> named_objects(const Rooms& rooms);
bool may_read(const Rooms& rooms, const Node& node, const Hash& manifest);
std::vector<Hash> lost_objects(const Rooms& rooms);
std::vector<RunFacts> run_facts(const Rooms& rooms);
std::vector<NodeId> revoked(const Rooms& rooms);

}  // namespace skerry::coordinator
