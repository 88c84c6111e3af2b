// SPDX-License-Identifier: Apache-2.0
// Tables of the coordinator's records, one for each kind, with change tracking.
//
// Invariant: a record differs from its durable form only while Changes lists
// its id. Tracked::change() is the only way to mutate a record, and lists it.
// Journal::take() writes all listed records.
//
// THREADS: one, the core's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "coordinator/core/core.h"
#include "coordinator/core/keys.h"
#include "coordinator/state.pb.h"

namespace skerry::coordinator {

// Collects the changes of every kind.
class Journal {
 public:
  using Take = std::function<void(std::vector<Write>&)>;

  void add(Kind kind, Take take) { kinds_.at(static_cast<std::size_t>(kind)) = std::move(take); }
  // RETURNS: the writes since the last call, by kind and then by id.
  std::vector<Write> take() {
    std::vector<Write> writes;
    for (const Take& take_kind : kinds_) take_kind(writes);
    return writes;
  }

 private:
  std::array<Take, std::size(kPrefixes)> kinds_;
};

// The ids of one kind that the next batch writes or deletes.
template <class Id>
class Changes {
 public:
  // `find` returns null if the record was erased.
  // LIFETIME: this, and what `find` reads, outlive the last Journal::take().
  template <class Find>
  Changes(Journal& journal, Kind kind, Find find) {
    journal.add(kind, [this, kind, find](std::vector<Write>& writes) {
      for (const Id& id : std::exchange(ids_, {})) {
        const auto* record = find(id);
        writes.push_back({key_of(kind, id), record == nullptr
                                                ? std::nullopt
                                                : std::optional(record->SerializeAsString())});
      }
    });
  }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  void add(const Id& id) { ids_.insert(id); }
  void forget(const Id& id) { ids_.erase(id); }

 private:
  std::set<Id> ids_;
};

inline std::string id_of(const stored::Meta& /*record*/) { return ""; }
inline NodeId id_of(const stored::Node& record) { return NodeId(record.id()); }
inline TokenId id_of(const stored::Token& record) { return TokenId(record.info().id()); }
inline DatasetName id_of(const stored::Dataset& record) {
  return DatasetName(record.content().name());
}
inline RunId id_of(const stored::Run& record) { return RunId(record.id()); }
inline RunId id_of(const stored::DeletedRun& record) { return RunId(record.id()); }
inline NodeId id_of(const stored::RevokedKey& record) { return NodeId(record.node()); }
inline std::string id_of(const stored::Speed& record) {
  return record.device() + '/' + record.kind();
}
inline std::string id_of(const stored::HistoryPart& record) {
  return id_text(ExpertId{RunId(record.run()), record.expert()}) + '/' +
         number_text(record.first());
}
inline RunId id_of(const stored::Spending& record) { return RunId(record.run()); }
inline std::uint64_t id_of(const pb::Event& event) { return event.number(); }
inline ExpertId id_of(const stored::Expert& record) {
  return {RunId(record.run()), record.index()};
}

// A record that lists itself when it changes. Outside a table it lists itself
// nowhere: run_create builds such a run to validate it.
template <class Record>
class Tracked {
 public:
  using Id = decltype(id_of(std::declval<const Record&>()));

  Tracked() = default;
  explicit Tracked(Record record) : record_(std::move(record)) {}

  const Record& operator*() const { return record_; }
  const Record* operator->() const { return &record_; }
  // REQUIRES: list_in() was called.
  const Id& id() const { return id_; }
  // REQUIRES: the caller does not change the id of a record in a table.
  Record& change() {
    if (changes_ != nullptr) changes_->add(id_);
    return record_;
  }
  // LIFETIME: `changes` outlives the record.
  void list_in(Changes<Id>& changes) {
    changes_ = &changes;
    id_ = id_of(record_);
  }

 private:
  Record record_;
  Id id_;
  Changes<Id>* changes_ = nullptr;
};

// An entity that consists of its record only.
template <class Record>
struct Plain {
  Tracked<Record> record;
};

// Entities by the id of their `record`, with the read interface of std::map.
template <class Entity>
class Table {
 public:
  using Id = typename decltype(Entity::record)::Id;
  using key_type = Id;

  Table(Journal& journal, Kind kind)
      : changes_(journal, kind, [this](const Id& id) {
          const auto found = entities_.find(id);
          return found == entities_.end() ? nullptr : &*found->second.record;
        }) {}

  auto begin() const { return entities_.begin(); }
  auto begin() { return entities_.begin(); }
  auto end() const { return entities_.end(); }
  auto end() { return entities_.end(); }
  std::size_t size() const { return entities_.size(); }
  bool empty() const { return entities_.empty(); }
  bool contains(const Id& id) const { return entities_.contains(id); }
  auto find(const Id& id) const { return entities_.find(id); }
  auto find(const Id& id) { return entities_.find(id); }
  auto lower_bound(const Id& id) const { return entities_.lower_bound(id); }
  auto upper_bound(const Id& id) const { return entities_.upper_bound(id); }
  const Entity& at(const Id& id) const { return entities_.at(id); }
  Entity& at(const Id& id) { return entities_.at(id); }

  // Inserts an entity that is durable already, and lists no change.
  Entity& load(Entity entity) {
    entity.record.list_in(changes_);
    const Id id = entity.record.id();
    return entities_[id] = std::move(entity);
  }
  Entity& insert(Entity entity) {
    Entity& inserted = load(std::move(entity));
    inserted.record.change();
    return inserted;
  }
  void erase(Id id) {  // by value: it may be part of the erased record
    if (entities_.erase(id) > 0) changes_.add(id);
  }
  template <class Predicate>
  void erase_if(Predicate predicate) {
    std::erase_if(entities_, [&](const auto& each) {
      const bool goes = predicate(each.second);
      if (goes) changes_.add(each.first);
      return goes;
    });
  }
  // Only for planted bugs: the change is lost at the next start.
  void forget_change(const Id& id) { changes_.forget(id); }

 private:
  std::map<Id, Entity> entities_;
  Changes<Id> changes_;
};

}  // namespace skerry::coordinator
