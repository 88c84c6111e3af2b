// SPDX-License-Identifier: Apache-2.0
#include "dashboard/run_track.h"

#include <algorithm>
#include <cmath>

#include "cli/shell/output.h"

namespace skerry::dashboard {
namespace {

// Six digits are more than a screen shows.
double rounded(double value) {
  return std::isfinite(value) ? std::round(value * 1e6) / 1e6 : value;
}

}  // namespace

std::uint64_t RunTrack::last(std::uint32_t expert) const {
  return expert < experts_.size() ? experts_[expert].last : 0;
}

std::size_t RunTrack::points(std::uint32_t expert) const {
  return expert < experts_.size() ? experts_[expert].points.size() : 0;
}

std::uint32_t RunTrack::number_of(const std::string& node) {
  const auto found = std::find(nodes_.begin(), nodes_.end(), node);
  if (found != nodes_.end()) return static_cast<std::uint32_t>(found - nodes_.begin());
  nodes_.push_back(node);
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

void RunTrack::add(std::uint32_t expert, const pb::HistoryPoint& point) {
  if (expert >= experts_.size()) experts_.resize(expert + 1);
  Expert& at = experts_[expert];
  at.last = point.number();
  add_lease(at, point);
  at.points.push_back({.step = point.step(), .unix_ms = point.unix_ms(), .loss = point.loss()});
  if (at.points.size() > kPoints) thin(at.points);
}

void RunTrack::add_lease(Expert& expert, const pb::HistoryPoint& point) {
  const bool goes_on = !expert.leases.empty() && expert.leases.back().epoch == point.epoch();
  if (!goes_on) {
    const std::int64_t before = expert.leases.empty() ? 0 : expert.leases.back().to_unix_ms;
    const auto trained = static_cast<std::int64_t>(point.train_seconds() * 1000);
    expert.leases.push_back({.node = number_of(point.node()),
                             .epoch = point.epoch(),
                             .from_unix_ms = std::max(before, point.unix_ms() - trained)});
    if (expert.leases.size() > kLeases) expert.leases.pop_front();
  }
  Lease& lease = expert.leases.back();
  lease.to_unix_ms = point.unix_ms();
  lease.step = point.step();
  ++lease.commits;
}

void RunTrack::thin(std::vector<Point>& points) {
  const std::size_t half = points.size() / 2;
  std::vector<Point> kept;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i >= half || i % 2 == 0) kept.push_back(points[i]);
  }
  points = std::move(kept);
}

std::string RunTrack::json() const {
  cli::Json experts = cli::Json::array();
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    cli::Json step = cli::Json::array(), time = step, loss = step, leases = step;
    for (const Point& point : experts_[i].points) {
      step.push_back(point.step);
      time.push_back(point.unix_ms);
      loss.push_back(rounded(point.loss));
    }
    for (const Lease& lease : experts_[i].leases) {
      leases.push_back({{"node", lease.node},
                        {"epoch", lease.epoch},
                        {"from", lease.from_unix_ms},
                        {"to", lease.to_unix_ms},
                        {"step", lease.step},
                        {"commits", lease.commits}});
    }
    experts.push_back({{"index", i},
                       {"step", std::move(step)},
                       {"time", std::move(time)},
                       {"loss", std::move(loss)},
                       {"leases", std::move(leases)}});
  }
  cli::Json nodes = cli::Json::array();
  for (const std::string& name : nodes_) nodes.push_back(cli::printable(name));
  return cli::versioned({{"nodes", nodes}, {"experts", experts}}).dump() + "\n";
}

}  // namespace skerry::dashboard
