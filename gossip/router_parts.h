// SPDX-License-Identifier: Apache-2.0
// From records alone: the experts of a run, where the best checkpoint of each
// lives, and the objects that make its router. It says what is missing rather
// than guessing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gossip/table.h"

namespace skerry::gossip {

inline constexpr std::size_t kHoldBytes = 8;  // of a manifest's hash, in NodeRecord.holds

// A node that says it has an object. Dead or alive is not known here: try them.
struct Holder {
  NodeId node;
  std::string address;  // empty: it only dials out, reach it over a connection that it made
  RecordPtr record;
};

struct Part {
  pb::ObjectRef object;
  std::vector<Holder> holders;
};

struct ExpertSource {
  ExpertIndex index = 0;
  pb::ExpertRecord best;      // as its author says
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
  std::vector<ExpertSource>
      experts;  // of the ensemble, growing; those of which nothing is known are not among them
  std::vector<std::string> missing;  // a sentence for each; empty: an ensemble can be fetched

  std::optional<ExpertSource>
      learned_router;  // of a run that trains one, once it has committed; its index is K
  std::string
      // why it cannot be had; the ensemble can do without. Empty: nothing is
      learned_router_missing;
};

// What a person dials, HOST:PORT#KEY, the key in hexadecimal; empty where the
// node cannot be dialled.
std::string node_address(const Record& node);

// Who says that it holds the object named `manifest`.
std::vector<Holder> holders_of(const Table& table, std::string_view manifest, Now now);

// Of several records about one expert the coordinator's counts, since what it
// acknowledged is what the run promised and a node can say anything; where it
// said nothing, or nobody holds what it said, the one of the highest epoch,
// then the furthest step, then the smallest manifest. One whose checkpoint
// somebody holds counts before one whose nobody does. kNotFound where no record
// tells of the run.
Result<RouterParts> router_parts(const Table& table, const RunId& run, Now now);

// A checkpoint that a record names as an expert's head.
struct ExpertHead {
  pb::ExpertRecord record;
  NodeId author;
  bool acknowledged = false;  // the author is the coordinator
};

// For an adoption: every head that records name, of each job of a run, also of
// those that were removed from its ensemble. By job; of one job the
// coordinator's own first, then the highest epoch, the furthest step, the
// smallest manifest. Who holds them plays no part: a node that is away may hold
// what was acknowledged. Each checkpoint once, by its best author.
std::vector<ExpertHead> expert_heads(const Table& table, const RunId& run, Now now);

// The run of this id, else of this name.
std::optional<RunId> run_named(const Table& table, const std::string& words, Now now);

// Every run that a record tells of.
std::vector<pb::RunRecord> known_runs(const Table& table, Now now);

}  // namespace skerry::gossip
