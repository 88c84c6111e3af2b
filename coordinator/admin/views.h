// SPDX-License-Identifier: Apache-2.0
// Read-only views that combine several rooms.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/rooms.h"

namespace skerry::coordinator {

// Finds a run by name or id.
// ON FAILURE: kNotFound; kConflict if only records know the run.
Result<const Run*> find_run(const Rooms& rooms, const std::string& name);
pb::RunInfo run_info(const Rooms& rooms, const Run& run, bool with_experts);
// RETURNS: the part of a run that never changes.
pb::EnsembleReply about(const Rooms& rooms, const Run& run);

// ---- Objects
// RETURNS: what is wrong with it and how to repair it; empty if nothing is
// wrong, or nothing names it.
std::string trouble_of(const Rooms& rooms, const Hash& manifest);
// RETURNS: the damage that stops this run or its fetch, as `run why` prints it.
std::vector<std::string> damages(const Rooms& rooms, const Run& run);
// Logs the object's damage or repair for every run and dataset that uses it.
void tell_of_object(Rooms& rooms, EventKind kind, const Hash& manifest);

// ---- For the host (core.h)
std::vector<NamedObject> named_objects(const Rooms& rooms);
bool may_read(const Rooms& rooms, const Node& node, const Hash& manifest);
std::vector<Hash> lost_objects(const Rooms& rooms);
std::vector<RunFacts> run_facts(const Rooms& rooms);
std::vector<NodeId> revoked(const Rooms& rooms);

}  // namespace skerry::coordinator
