// SPDX-License-Identifier: Apache-2.0
#include "gossip/table.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "gossip/verifier.h"

namespace skerry::gossip {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A false age and two wrong clocks can make a record die early by twice the
// slack and seem alive late by twice the slack.
constexpr Duration kRemembered = 4 * kClockSlack;

std::uint32_t whole_seconds(Duration boot) {
  return static_cast<std::uint32_t>(std::chrono::duration_cast<seconds>(boot).count());
}

bool is_alive(const Entry& entry, Now now) { return now.boot < seconds(entry.dies_at_s); }

bool is_before(const Entry& entry, const Record& record) {
  return std::tie(entry.position, entry.record->key) < std::tie(record.position, record.key);
}

// Smaller: more important.
auto importance(const Record& record) {
  return std::tuple<bool, Kind, Position, const Key&>(!record.by_coordinator, record.key.kind,
                                                      record.position, record.key);
}
bool matters_less(const Record& a, const Record& b) { return importance(a) > importance(b); }

// The lifetime left to a record of claimed age `age`; none: it has expired. In
// milliseconds, since a date from outside may be thousands of years away.
std::optional<Duration> time_left(const Record& record, Duration age, Now now) {
  constexpr std::int64_t kSlackMs = std::chrono::duration_cast<milliseconds>(kClockSlack).count();
  const std::int64_t by_dates_ms = now.unix_ms - record.body.issued_unix_ms();
  const std::int64_t said_ms = std::chrono::duration_cast<milliseconds>(age).count();
  const std::int64_t age_ms = std::max<std::int64_t>(
      0, std::clamp(said_ms, by_dates_ms - kSlackMs, by_dates_ms + kSlackMs));
  std::int64_t left_ms = static_cast<std::int64_t>(record.body.lifetime_ms()) - age_ms;
  const std::int64_t certified_ms = record.certificate_until_unix_ms;  // 0: not known yet
  if (certified_ms != 0 && certified_ms != std::numeric_limits<std::int64_t>::max()) {
    left_ms = std::min(left_ms, certified_ms + kSlackMs - now.unix_ms);
  }
  if (left_ms <= 0) return std::nullopt;
  return milliseconds(left_ms);
}

// The least important of `rivals` that `record` may replace; null: none.
const Record* giving_way(const std::vector<const Entry*>& rivals, const Record& record) {
  const Record* least = &record;
  for (const Entry* rival : rivals) {
    if (matters_less(*rival->record, *least)) least = rival->record.get();
  }
  return least == &record ? nullptr : least;
}

}  // namespace

Range Table::range_of_bucket(std::size_t bucket) {
  const Position first = static_cast<Position>(bucket) << 56;
  return {first, first | ((Position{1} << 56) - 1)};
}

Duration Table::age(const Entry& entry, Now now) {
  return std::max(Duration::zero(),
                  entry.record->lifetime() - (seconds(entry.dies_at_s) - now.boot));
}

const Entry* Table::held(const Key& key, Position position) const {
  const std::vector<Entry>& entries = buckets_[bucket_of(position)].entries;
  auto found = std::ranges::lower_bound(entries, position, {}, &Entry::position);
  for (; found != entries.end() && found->position == position; ++found) {
    if (found->record->key == key) return &*found;
  }
  return nullptr;
}

const Entry* Table::find(const Key& key, Now now) const {
  const Entry* entry = held(key, position_of(key, key.author == coordinator_));
  return entry != nullptr && is_alive(*entry, now) ? entry : nullptr;
}

const Entry* Table::find_node(const NodeId& node, Now now) const {
  return find(Key{.kind = Kind::kNode, .author = node}, now);
}

const Entry* Table::find_run(const RunId& run, Now now) const {
  return find(Key{.kind = Kind::kRun, .author = coordinator_, .run = run}, now);
}

bool Table::is_revoked(const NodeId& node, Now now) const {
  const auto found = revocations_.find(node);
  if (found == revocations_.end()) return false;
  const Entry* entry =
      held(Key{.kind = Kind::kRevocation, .author = coordinator_, .subject = node}, found->second);
  return entry != nullptr && is_alive(*entry, now) && !entry->record->body.withdrawn();
}

std::vector<const Entry*> Table::at(Position position, Now now) const {
  return in({position, position}, now);
}

std::vector<const Entry*> Table::in(Range range, Now now) const {
  std::vector<const Entry*> found;
  for (std::size_t bucket = bucket_of(range.first); bucket <= bucket_of(range.last); ++bucket) {
    const std::vector<Entry>& entries = buckets_[bucket].entries;
    auto each = std::ranges::lower_bound(entries, range.first, {}, &Entry::position);
    for (; each != entries.end() && each->position <= range.last; ++each) {
      if (is_alive(*each, now)) found.push_back(&*each);
    }
  }
  return found;
}

void Table::for_each(Now now, const std::function<void(const Entry&)>& visit) const {
  for (const Bucket& bucket : buckets_) {
    for (const Entry& entry : bucket.entries) {
      if (is_alive(entry, now)) visit(entry);
    }
  }
}

const Entry* Table::pick(std::uint64_t number) const {
  if (size_ == 0) return nullptr;
  number %= size_;
  for (const Bucket& bucket : buckets_) {
    if (number < bucket.entries.size()) return &bucket.entries[number];
    number -= bucket.entries.size();
  }
  return nullptr;
}

Table::Standing Table::compare(const Head& head, Now now) const {
  const auto rank = [](const Version& version) {
    return std::tuple(version.incarnation, version.counter, version.stamp());
  };
  const std::tuple theirs(head.incarnation, head.counter, head.stamp);
  Standing standing{.lacking = true, .behind = false};
  const std::vector<Entry>& entries = buckets_[bucket_of(head.position)].entries;
  auto entry = std::ranges::lower_bound(entries, head.position, {}, &Entry::position);
  for (; entry != entries.end() && entry->position == head.position; ++entry) {
    if (!is_alive(*entry, now)) continue;
    const auto mine = rank(entry->record->version);
    const bool soon = !entry->record->by_coordinator &&
                      now.boot < seconds(entry->came_at_s) + limits_.accept_least;
    if (mine >= theirs || soon) standing.lacking = false;
    if (mine > theirs) standing.behind = true;
  }
  const auto [first, last] = dead_.equal_range(head.position);
  for (auto each = first; each != last; ++each) {
    const auto gone = rank(each->second.version);
    if (gone > theirs || (gone == theirs && !each->second.may_return)) standing.lacking = false;
  }
  return standing;
}

bool Table::contradicts(const Record& record) const {
  const Entry* entry = held(record.key, record.position);
  return entry != nullptr && entry->record->version.same_number(record.version) &&
         entry->record->version != record.version;
}

bool Table::was_here(const Record& record) const {
  const auto [first, last] = dead_.equal_range(record.position);
  return std::any_of(first, last, [&](const auto& each) {
    const Dead& dead = each.second;
    return dead.key == record.key &&
           (record.version < dead.version || (record.version == dead.version && !dead.may_return));
  });
}

bool Table::has_run(const Record& record, Now now) const {
  const Entry* run = find_run(record.key.run, now);
  return run != nullptr && !run->record->body.withdrawn() &&
         record.key.expert < run->record->body.run().experts();
}

Verdict Table::judge(const Record& record, Duration age, Now now, Origin origin) const {
  if (!record.by_coordinator && is_revoked(record.key.author, now)) {
    return Verdict::kRevoked;
  }
  const Entry* entry = held(record.key, record.position);
  if (entry != nullptr) {
    if (record.version == entry->record->version) return Verdict::kHeld;
    if (record.version < entry->record->version) return Verdict::kOlder;
  }
  if (was_here(record) || !time_left(record, age, now)) return Verdict::kDead;
  if (record.key.kind == Kind::kExpert && !has_run(record, now)) return Verdict::kNoRun;
  if (entry == nullptr) return Verdict::kNew;
  const bool soon = now.boot < seconds(entry->came_at_s) + limits_.accept_least;
  return soon && origin == Origin::kPeer && !record.by_coordinator ? Verdict::kTooSoon
                                                                   : Verdict::kNewer;
}

Table::Change Table::put(const RecordPtr& record, Duration age, Now now, Origin origin) {
  Change change;
  change.verdict = judge(*record, age, now, origin);
  const Entry* entry = held(record->key, record->position);
  if (!is_held(change.verdict)) return change;
  if (entry != nullptr) erase(*RecordPtr(entry->record));
  if (!makes_room(*record, change, now)) {
    if (change.verdict == Verdict::kNewer) bury(*record, true, now);
    change.verdict = Verdict::kUnimportant;
    return change;
  }
  insert({.position = record->position,
          .record = record,
          .dies_at_s = whole_seconds(now.boot + *time_left(*record, age, now)),
          .came_at_s = origin == Origin::kDisk ? 0 : whole_seconds(now.boot)});
  follow(*record, change, now);
  return change;
}

bool Table::makes_room(const Record& record, Change& change, Now now) {
  const auto cede = [&](const std::vector<const Entry*>& rivals) {
    const Record* least = giving_way(rivals, record);
    if (least == nullptr) return false;
    const RecordPtr kept = held(least->key, least->position)->record;
    bury(*kept, true, now);
    drop(kept, change);
    return true;
  };
  if (!record.by_coordinator) {
    std::vector<const Entry*> rivals = in(range_of_node(record.key.author), now);
    std::erase_if(rivals,
                  [&](const Entry* each) { return each->record->key.author != record.key.author; });
    if (rivals.size() >= limits_.author_records && !cede(rivals)) return false;
  }
  if (record.key.kind == Kind::kExpert && run_sizes_[record.key.run] >= limits_.run_records) {
    std::vector<const Entry*> rivals;
    for_each(now, [&](const Entry& each) {
      if (each.record->key.kind == Kind::kExpert && each.record->key.run == record.key.run) {
        rivals.push_back(&each);
      }
    });
    if (!cede(rivals)) return false;
  }
  while (size_ >= limits_.records || bytes_ + record.bytes > limits_.bytes) {
    std::vector<const Entry*> rivals;
    for (const Bucket& bucket : buckets_) {
      for (const Entry& each : bucket.entries) rivals.push_back(&each);
    }
    if (!cede(rivals)) return false;
  }
  return true;
}

// The consequences of a new record for others. A revoked node loses its
// records, and an ended run loses those about its experts.
void Table::follow(const Record& record, Change& change, Now now) {
  std::vector<RecordPtr> gone;
  if (record.key.kind == Kind::kRevocation && !record.body.withdrawn()) {
    for (const Entry* each : in(range_of_node(record.key.subject), now)) {
      if (each->record->key.author == record.key.subject) gone.push_back(each->record);
    }
  }
  if (record.key.kind == Kind::kRun) {
    for_each(now, [&](const Entry& each) {
      const bool about =
          each.record->key.kind == Kind::kExpert && each.record->key.run == record.key.run;
      if (about && !has_run(*each.record, now)) gone.push_back(each.record);
    });
  }
  for (const RecordPtr& each : gone) {
    bury(*each, true, now);
    drop(each, change);
  }
}

void Table::drop(const RecordPtr& record, Change& change) {
  erase(*record);
  change.dropped.push_back(record);
}

void Table::insert(Entry entry) {
  const Record& record = *entry.record;
  Bucket& bucket = buckets_[bucket_of(entry.position)];
  bucket.next_death_s = std::min(bucket.next_death_s, entry.dies_at_s);
  fingerprints_[bucket_of(entry.position)] ^= record.version.stamp();
  ++size_;
  bytes_ += record.bytes;
  if (record.key.kind == Kind::kExpert) ++run_sizes_[record.key.run];
  if (record.key.kind == Kind::kRevocation && record.by_coordinator)
    revocations_[record.key.subject] = record.position;
  const auto place =
      std::lower_bound(bucket.entries.begin(), bucket.entries.end(), record, is_before);
  bucket.entries.insert(place, std::move(entry));
}

void Table::erase(const Record& record) {
  std::vector<Entry>& entries = buckets_[bucket_of(record.position)].entries;
  const Entry* entry = held(record.key, record.position);
  SKERRY_CHECK(entry != nullptr, describe(record.key), " is not in the table");
  fingerprints_[bucket_of(record.position)] ^= entry->record->version.stamp();
  --size_;
  bytes_ -= entry->record->bytes;
  if (record.key.kind == Kind::kRevocation && record.by_coordinator)
    revocations_.erase(record.key.subject);
  if (record.key.kind == Kind::kExpert) {
    const auto run = run_sizes_.find(record.key.run);
    if (--run->second == 0) run_sizes_.erase(run);
  }
  entries.erase(entries.begin() + (entry - entries.data()));
}

void Table::bury(const Record& record, bool may_return, Now now) {
  const Duration until = now.boot + kRemembered;
  dead_.emplace(record.position, Dead{record.key, record.version, until, may_return});
  dead_order_.emplace_back(until, record.position);
}

void Table::expire(Now now) {
  for (Bucket& bucket : buckets_) {
    if (now.boot < seconds(bucket.next_death_s)) continue;
    std::vector<RecordPtr> gone;
    bucket.next_death_s = UINT32_MAX;
    for (const Entry& entry : bucket.entries) {
      if (is_alive(entry, now)) {
        bucket.next_death_s = std::min(bucket.next_death_s, entry.dies_at_s);
      } else {
        gone.push_back(entry.record);
      }
    }
    for (const RecordPtr& each : gone) {
      bury(*each, false, now);
      erase(*each);
    }
  }
  while (!dead_order_.empty() &&
         (dead_order_.front().first <= now.boot || dead_order_.size() > limits_.remembered_dead)) {
    const Duration until = dead_order_.front().first;
    const auto [first, last] = dead_.equal_range(dead_order_.front().second);
    const auto found =
        std::find_if(first, last, [&](const auto& each) { return each.second.until == until; });
    if (found != last) dead_.erase(found);
    dead_order_.pop_front();
  }
}

}  // namespace skerry::gossip
