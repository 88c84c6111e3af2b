// SPDX-License-Identifier: Apache-2.0
// What a run's experts committed, in little: enough to draw who trained what
// when, and how the loss went.
//
// Invariant: an expert has at most kPoints points and kLeases leases, in order.
// Where it has more points, every second one of the older half goes; of leases
// the oldest goes.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "protocol/skerry.pb.h"

namespace skerry::dashboard {

class RunTrack {
 public:
  static constexpr std::size_t kPoints = 256;
  static constexpr std::size_t kLeases = 256;

  // The number of the last point that was added; 0: none.
  std::uint64_t last(std::uint32_t expert) const;
  // REQUIRES: the point's number is higher than last().
  void add(std::uint32_t expert, const pb::HistoryPoint& point);
  std::size_t points(std::uint32_t expert) const;

  // RETURNS: {"nodes": […], "experts": [{"index", "step": […], "time": […],
  // "loss": […], "leases": [{"node", "epoch", "from", "to", "step",
  // "commits"}]}]}, the first three with one entry a point. Times are
  // milliseconds since 1970. A node is its index in "nodes".
  std::string json() const;

 private:
  struct Point {
    std::uint64_t step = 0;
    std::int64_t unix_ms = 0;
    double loss = 0;
  };
  // What one node committed of an expert under one epoch.
  struct Lease {
    std::uint32_t node = 0;  // index in nodes_
    std::uint64_t epoch = 0;
    std::int64_t from_unix_ms = 0;  // when the first commit's steps began
    std::int64_t to_unix_ms = 0;    // of the last commit
    std::uint64_t step = 0;         // of the last commit
    std::uint64_t commits = 0;
  };
  struct Expert {
    std::uint64_t last = 0;
    std::vector<Point> points;
    std::deque<Lease> leases;
  };

  std::uint32_t number_of(const std::string& node);
  void add_lease(Expert& expert, const pb::HistoryPoint& point);
  static void thin(std::vector<Point>& points);

  std::vector<Expert> experts_;
  std::vector<std::string> nodes_;
};

}  // namespace skerry::dashboard
