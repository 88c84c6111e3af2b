// SPDX-License-Identifier: Apache-2.0
// Finds a run's experts from records alone: where the best checkpoint of each
// lives, and the objects that make its router. It reports what is missing and
// never guesses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gossip/table.h"

namespace skerry::gossip {

inline constexpr std::size_t kHoldBytes = 8;  // of a manifest's hash, in NodeRecord.holds

// A node whose record claims that it has an object. It may be dead: try it.
struct Holder {
  NodeId node;
  // empty: it only dials out; use a connection that it made
  std::string address;
  RecordPtr record;
};

struct Part {
  pb::ObjectRef object;
  std::vector<Holder> holders;
};

struct ExpertSource {
  ExpertIndex index = 0;
  pb::ExpertRecord best;      // as its author states it
  bool acknowledged = false;  // the author is the coordinator
  NodeId author;
  Duration age{};  // of the record, since it was signed
  std::vector<Holder> holders;
  std::optional<Part> statistics;
};

struct RouterParts {
  RunId run;
  pb::RunRecord about;
  Part spec;
  std::optional<Part> router;
  // of the ensemble, in ascending order; without those that no record names
  std::vector<ExpertSource> experts;
  std::vector<std::string> missing;  // a sentence each; empty: an ensemble can be fetched

  // set if the run trains a router and has committed one; its index is K
  std::optional<ExpertSource> learned_router;
  // why it is missing; the ensemble works without it. Empty: it is there, or
  // the run trains none
  std::string learned_router_missing;
};

// RETURNS: the address that a person dials, HOST:PORT#KEY with the key in
// hexadecimal. Empty if the node cannot be dialled.
std::string node_address(const Record& node);

// RETURNS: the nodes whose records claim the object named `manifest`.
std::vector<Holder> holders_of(const Table& table, std::string_view manifest, Now now);

// Chooses one record for each expert. A checkpoint that some node holds wins
// over one that no node holds. Then the coordinator's record wins: the run
// promised what the coordinator acknowledged, and a node can claim anything.
// Then the highest epoch wins, then the furthest step, then the smallest
// manifest.
// ON FAILURE: kNotFound if no record names the run.
Result<RouterParts> router_parts(const Table& table, const RunId& run, Now now);

// A checkpoint that a record names as an expert's head.
struct ExpertHead {
  pb::ExpertRecord record;
  NodeId author;
  bool acknowledged = false;  // the author is the coordinator
};

// RETURNS: for an adoption, every head that records name, of each job of a run,
// also of jobs removed from its ensemble. Sorted by job; within a job the
// coordinator's own comes first, then the highest epoch, the furthest step, the
// smallest manifest. Holders do not count: an absent node may hold an
// acknowledged checkpoint. Each checkpoint appears once, by its best author.
std::vector<ExpertHead> expert_heads(const Table& table, const RunId& run, Now now);

// RETURNS: the run with this id, else with this name.
std::optional<RunId> run_named(const Table& table, const std::string& words, Now now);

// RETURNS: every run that a record names.
std::vector<pb::RunRecord> known_runs(const Table& table, Now now);

}  // namespace skerry::gossip
