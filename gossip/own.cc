// SPDX-License-Identifier: Apache-2.0
#include "gossip/own.h"

#include <algorithm>
#include <tuple>

#include "protocol/limits.h"

namespace skerry::gossip {
namespace {

constexpr std::uint64_t kBeyondMost =
    1 << 20;  // as milliseconds a quarter of an hour: clocks catch up

// The fact of a body, without author, times and version.
std::string fact_bytes(pb::RecordBody body) {
  body.clear_author();
  body.clear_incarnation();
  body.clear_counter();
  body.clear_issued_unix_ms();
  body.clear_lifetime_ms();
  return body.SerializeAsString();
}

}  // namespace

std::uint64_t incarnation_after(const std::string& saved, std::int64_t unix_ms,
                                std::uint64_t seed) {
  const auto by_clock = static_cast<std::uint64_t>(unix_ms);
  pb::SavedRecords records;
  if (!records.ParseFromString(saved) || records.incarnation() < by_clock ||
      records.incarnation() >= protocol::kRecordVersion - kBeyondMost)
    return by_clock;
  // A start in between may have kept no trace, so the step is random, as in
  // go_beyond().
  Stream random(skerry::Position{.seed = seed, .sample = 1, .purpose = Purpose::kGossip});
  return records.incarnation() + 1 + random.below(kBeyondMost);
}

Duration Own::lifetime() const {
  return config_.certificate.body().empty() ? config_.coordinator_lifetime : config_.node_lifetime;
}

// Drawn at random, so that a fleet that started at once does not keep signing
// at once.
Duration Own::until_again(Stream& random) const {
  return std::chrono::duration_cast<Duration>(lifetime() / 4 * (1 - random.uniform() / 4));
}

// The step is random. This process cannot know which numbers the other start
// signed after this record. Nor can it know which number a start in between
// chose to exceed it. None of them may sign another fact.
void Own::saw(const Record& record, Stream& random) {
  const std::uint64_t theirs = record.version.incarnation;
  if (theirs >= highest_ && theirs < protocol::kRecordVersion - kBeyondMost)
    highest_ = theirs + 1 + random.below(kBeyondMost);
}

void Own::go_beyond(const Record& record, Fact& fact, Stream& random) {
  saw(record, random);
  const bool is_last = highest_ <= record.version.incarnation;
  fact.incarnation = is_last ? record.version.incarnation : highest_;
  fact.counter = is_last ? record.version.counter : 0;
}

void Own::say(const Key& key, const pb::RecordBody& body, const Record* held, Duration age, Now now,
              Stream& random) {
  auto [found, added] = facts_.try_emplace(key);
  Fact& fact = found->second;
  if (added) {
    fact.incarnation = highest_;
    if (held != nullptr && held->version.incarnation >= fact.incarnation) {
      go_beyond(*held, fact, random);
    }
    fact.body = held != nullptr ? held->body : pb::RecordBody();
    fact.changed = held == nullptr;
    fact.again_at = now.boot + until_again(random) - age;
  }
  if (fact_bytes(fact.body) == fact_bytes(body)) return;
  fact.body = body;
  fact.changed = true;
}

bool Own::overtaken(const Record& record, Stream& random) {
  const auto found = facts_.find(record.key);
  if (found == facts_.end()) return false;
  Fact& fact = found->second;
  const auto theirs = std::tuple(record.version.incarnation, record.version.counter);
  if (theirs < std::tuple(fact.incarnation, fact.counter)) return false;
  go_beyond(record, fact, random);
  fact.changed = true;
  return true;
}

std::vector<pb::RecordBody> Own::due(Now now, Stream& random) {
  std::vector<pb::RecordBody> bodies;
  for (auto& [key, fact] : facts_) {
    const bool may = !fact.signed_at || now.boot >= *fact.signed_at + config_.update_least;
    if (!may || (!fact.changed && now.boot < fact.again_at)) continue;
    fact.again_at = now.boot + until_again(random);
    fact.signed_at = now.boot;
    if (fact.counter == 0)
      fact.incarnation = std::max(fact.incarnation, highest_);  // raised since it was said
    fact.changed = false;
    fact.body.set_incarnation(fact.incarnation);
    fact.body.set_counter(++fact.counter);
    fact.body.set_issued_unix_ms(now.unix_ms);
    fact.body.set_lifetime_ms(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(lifetime()).count()));
    bodies.push_back(fact.body);
  }
  return bodies;
}

}  // namespace skerry::gossip
