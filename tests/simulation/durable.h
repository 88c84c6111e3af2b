// SPDX-License-Identifier: Apache-2.0
// Reading the coordinator's durable records, for those who check them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/keys.h"
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

// Reads the same records again and again: only those whose bytes have changed
// are parsed.
template <class Record>
class Reader {
 public:
  // As read(); nullptr for none. Valid until it is asked for the same key
  // again.
  const Record* read(const Durable& durable, const std::string& key) {
    const auto found = durable.find(key);
    if (found == durable.end()) return nullptr;
    auto& [bytes, record] = records_[key];
    if (!record || bytes != found->second) {
      bytes = found->second;
      record.emplace();
      if (!record->ParseFromString(bytes)) record.reset();
    }
    return record ? &*record : nullptr;
  }

 private:
  std::map<std::string, std::pair<std::string, std::optional<Record>>>
      records_;  // with the bytes of each
};

template <class Record, class Visit>
void each(const Durable& durable, const std::string& prefix, Visit visit) {
  for (auto at = durable.lower_bound(prefix); at != durable.end() && at->first.starts_with(prefix);
       ++at) {
    Record record;
    if (record.ParseFromString(at->second)) visit(record);
  }
}

}  // namespace skerry::simulation
