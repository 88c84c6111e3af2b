// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/disk_rules.h"

#include <algorithm>

#include "tests/simulation/durable.h"

namespace skerry::simulation {
namespace {

// Few records hold these bytes at all: only they are read.
bool names(const std::string& key, const std::string& value, const std::string& manifest) {
  if (value.find(manifest) == std::string::npos) return false;
  stored::Expert expert;
  if (key.starts_with(coordinator::kExpertPrefix) && expert.ParseFromString(value))
    return std::ranges::any_of(expert.checkpoints(), [&](const auto& checkpoint) {
      return checkpoint.manifest() == manifest;
    });
  stored::Dataset dataset;
  if (key.starts_with(coordinator::kDatasetPrefix) && dataset.ParseFromString(value))
    return std::ranges::any_of(dataset.content().files(), [&](const auto& file) {
      return file.object().manifest() == manifest;
    });
  return false;
}

bool is_event(const std::string& key) { return key.starts_with(coordinator::kEventPrefix); }

}  // namespace

bool is_named(const Durable& durable, const std::string& manifest) {
  for (const std::string prefix : {coordinator::kExpertPrefix, coordinator::kDatasetPrefix}) {
    for (auto at = durable.lower_bound(prefix);
         at != durable.end() && at->first.starts_with(prefix); ++at) {
      if (names(at->first, at->second, manifest)) return true;
    }
  }
  return false;
}

void DiskRules::apply_first() {
  for (coordinator::Write& write : pending_.front().writes) {
    const std::size_t before = sure_.size();
    if (is_event(write.key)) {
      if (const auto old = sure_.find(write.key); old != sure_.end()) count_event(old->second, -1);
      if (write.value) count_event(*write.value, 1);
    }
    if (write.value) {
      sure_[write.key] = std::move(*write.value);
    } else {
      sure_.erase(write.key);
    }
    if (is_event(write.key)) events_ += sure_.size() - before;
  }
  pending_.pop_front();
}

void DiskRules::take(const Durable& durable) {
  pending_.clear();
  sure_ = durable;
  events_ = 0;
  events_of_node_.clear();
  last_event_.clear();
  for (const auto& [key, value] : sure_) {
    if (!is_event(key)) continue;
    last_event_ = std::max(last_event_, key);
    ++events_;
    count_event(value, 1);
  }
}

void DiskRules::count_event(const std::string& record, int by) {
  pb::Event event;
  if (!event.ParseFromString(record) || event.node().empty()) return;
  std::size_t& count = events_of_node_[event.node()];
  count += static_cast<std::size_t>(by);
  if (count == 0) events_of_node_.erase(event.node());
}

std::pair<std::size_t, std::string> DiskRules::most_events_of_a_node() const {
  std::pair<std::size_t, std::string> most;
  for (const auto& [node, count] : events_of_node_) most = std::max(most, {count, node});
  return most;
}

bool DiskRules::is_revoked(const std::string& node) const {
  const auto record = read<stored::Node>(sure_, coordinator::kNodePrefix + node);
  return record && record->revoked();
}

std::string DiskRules::stepped(const coordinator::Event* event,
                               const coordinator::Effects& effects) {
  if (const auto* persisted =
          event == nullptr ? nullptr : std::get_if<coordinator::Persisted>(event)) {
    while (!pending_.empty() && pending_.front().number <= persisted->batch) apply_first();
  }
  if (effects.batch.number != 0) pending_.push_back({effects.batch.number, effects.batch.writes});
  for (const coordinator::Write& write : effects.batch.writes) {
    if (!write.value || !is_event(write.key)) continue;
    if (write.key <= last_event_) return write.key + " is written after " + last_event_;
    last_event_ = write.key;
  }
  return "";
}

std::string DiskRules::started(const Durable& durable) {
  while (sure_ != durable && !pending_.empty()) apply_first();
  const bool is_right = sure_ == durable;
  take(durable);
  return is_right ? ""
                  : "after a start the disk holds no state that ever was, or an older one than it "
                    "had synced";
}

void DiskRules::restored(const Durable& durable) { take(durable); }

bool DiskRules::is_named_by_pending(const std::string& manifest) const {
  return std::ranges::any_of(pending_, [&](const Batch& batch) {
    return std::ranges::any_of(batch.writes, [&](const coordinator::Write& write) {
      return write.value && names(write.key, *write.value, manifest);
    });
  });
}

}  // namespace skerry::simulation
