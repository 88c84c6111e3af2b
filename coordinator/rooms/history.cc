// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/history.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

// Of the ids of an expert's parts.
std::string prefix_of(const ExpertId& id) { return id_text(id) + '/'; }

}  // namespace

void History::add(const ExpertId& id, pb::HistoryPoint point) {
  const std::string prefix = prefix_of(id);
  std::size_t parts = 0;
  const stored::HistoryPart* last = nullptr;
  for (auto part = parts_.lower_bound(prefix);
       part != parts_.end() && part->first.starts_with(prefix); ++part, ++parts)
    last = &*part->second.record;
  point.set_number(last == nullptr ? 1 : last->points().rbegin()->number() + 1);
  if (last != nullptr && last->points_size() < kPartPoints) {
    *parts_.at(id_of(*last)).record.change().add_points() = std::move(point);
    return;
  }
  if (parts == kParts) thin(prefix);
  stored::HistoryPart part;
  part.set_run(id.run.str());
  part.set_expert(id.index);
  part.set_first(point.number());
  *part.add_points() = std::move(point);
  parts_.insert({Tracked(std::move(part))});
}

// Of two parts of the older half, every second point becomes the first of them.
void History::thin(const std::string& prefix) {
  std::vector<std::string> ids;
  for (auto part = parts_.lower_bound(prefix); ids.size() < kParts / 2; ++part)
    ids.push_back(part->first);
  for (std::size_t i = 0; i < ids.size(); i += 2) {
    google::protobuf::RepeatedPtrField<pb::HistoryPoint> kept;
    for (const std::string& id : {ids[i], ids[i + 1]}) {
      const stored::HistoryPart& part = *parts_.at(id).record;
      for (int at = 1; at < part.points_size(); at += 2) *kept.Add() = part.points(at);
    }
    parts_.at(ids[i]).record.change().mutable_points()->Swap(&kept);
    parts_.erase(ids[i + 1]);
  }
}

pb::HistoryReply History::list(const ExpertId& id, std::uint64_t after, std::uint32_t limit) const {
  constexpr auto kPage = static_cast<std::uint32_t>(protocol::kPageItems);
  const auto most = static_cast<int>(limit == 0 ? kPage : std::min(limit, kPage));
  const std::string prefix = prefix_of(id);
  pb::HistoryReply reply;
  for (auto part = parts_.lower_bound(prefix);
       part != parts_.end() && part->first.starts_with(prefix); ++part) {
    for (const pb::HistoryPoint& point : part->second.record->points()) {
      if (point.number() > after && reply.points_size() < most) *reply.add_points() = point;
    }
  }
  return reply;
}

void History::forget(const RunId& run) {
  parts_.erase_if([&](const auto& part) { return part.record->run() == run.str(); });
}

std::string History::load(stored::HistoryPart record) {
  const bool full = record.points_size() > kPartPoints;
  if (record.points_size() == 0 || full)
    return text("it has ", record.points_size(), " points, not 1 to ", kPartPoints);
  const auto is_out_of_order = [](const pb::HistoryPoint& a, const pb::HistoryPoint& b) {
    return a.number() >= b.number();
  };
  if (std::ranges::adjacent_find(record.points(), is_out_of_order) != record.points().end())
    return "its points are out of order";
  parts_.load({Tracked(std::move(record))});
  return "";
}

}  // namespace skerry::coordinator
