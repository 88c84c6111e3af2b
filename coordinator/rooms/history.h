// SPDX-License-Identifier: Apache-2.0
// What each expert's commits said of its training. People and viewers read it;
// nothing is decided by it.
//
// An expert's points are stored in parts, so that a commit writes one part and
// not all of them. Where an expert has kParts, every second point of the older
// half goes. So the last thousand commits are complete, and those before them
// become sparser with age.
//
// Invariant: an expert has at most kParts parts of at most kPartPoints points,
// in order of their numbers. A commit's point is in the commit's batch.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/context.h"
#include "coordinator/core/table.h"

namespace skerry::coordinator {

class History : Room {
 public:
  static constexpr int kPartPoints = 64;
  static constexpr std::size_t kParts = 32;

  explicit History(Context& the_context) : Room(the_context) {}

  // Numbers the point: one more than the expert's last.
  void add(const ExpertId& id, pb::HistoryPoint point);
  // RETURNS: points with higher numbers than `after`, the oldest first; at most
  // `limit`, or a page if that is 0.
  pb::HistoryReply list(const ExpertId& id, std::uint64_t after, std::uint32_t limit) const;
  void forget(const RunId& run);

  const Table<Plain<stored::HistoryPart>>& all() const { return parts_; }
  // RETURNS: what is wrong; empty if nothing is.
  std::string load(stored::HistoryPart record);

 private:
  void thin(const std::string& prefix);

  Table<Plain<stored::HistoryPart>> parts_{context.journal, Kind::kHistory};
};

}  // namespace skerry::coordinator
