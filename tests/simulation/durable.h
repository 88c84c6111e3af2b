// Reading the coordinator's durable records, for those who check them.
#pragma once

#include <optional>
#include <string>

#include "coordinator/keys.h"
#include "coordinator/state.pb.h"
#include "tests/simulation/watcher.h"

namespace skerry::simulation {

namespace stored = coordinator::stored;

// None where there is no such record, or none that parses.
template <class Record>
std::optional<Record> read(const Durable& durable, const std::string& key) {
  const auto found = durable.find(key);
  Record record;
  if (found == durable.end() || !record.ParseFromString(found->second)) return std::nullopt;
  return record;
}

template <class Record, class Visit>
void each(const Durable& durable, const std::string& prefix, Visit visit) {
  for (auto at = durable.lower_bound(prefix); at != durable.end() && at->first.starts_with(prefix); ++at) {
    Record record;
    if (record.ParseFromString(at->second)) visit(record);
  }
}

}  // namespace skerry::simulation
