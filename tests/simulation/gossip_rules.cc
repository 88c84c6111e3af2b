// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gossip_rules.h"

#include <algorithm>

#include "gossip/router_parts.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/describe.h"

namespace skerry::simulation {

using gossip::Entry;
using gossip::Key;
using gossip::Kind;
using gossip::Record;
using gossip::RecordPtr;
using gossip::Table;

// Where nothing has changed in a bucket its fingerprint is what it was: most
// looks cost a comparison.
void GossipRules::stepped(const Look& look) {
  Process& process = processes_[look.name];
  const gossip::Limits& limits = look.table.limits();
  fail_if(look.table.size() > limits.records || look.table.bytes() > limits.bytes, "S15", look.name,
          "'s table holds ", look.table.size(), " records of ", look.table.bytes(), " bytes");
  // What dies within one round is forgotten with the next.
  fail_if(look.table.remembered_dead() > limits.remembered_dead + limits.records, "S15", look.name,
          " remembers ", look.table.remembered_dead(), " dead records");
  fail_if(look.links > look.links_most, "S15", look.name, " keeps ", look.links, " connections");
  const gossip::Fingerprints& now = look.table.fingerprints();
  if (now == process.seen) return;
  std::vector<Entry> fresh;
  for (std::size_t bucket = 0; bucket < now.size(); ++bucket) {
    if (now[bucket] != process.seen[bucket]) changed(look, process, bucket, fresh);
  }
  process.seen = now;
  bool is_anybody_revoked = false;
  for (const Entry& entry : fresh) {
    check_content(look, entry.record);
    check_version(look, process, *entry.record);
    is_anybody_revoked = is_anybody_revoked || entry.record->key.kind == Kind::kRevocation;
  }
  if (process.revoked.empty()) return;
  check_revoked(look, process, fresh);
  if (!is_anybody_revoked) return;
  for (const std::vector<Entry>& bucket : process.held) check_revoked(look, process, bucket);
}

void GossipRules::changed(const Look& look, Process& process, std::size_t bucket,
                          std::vector<Entry>& fresh) {
  std::vector<Entry> held;
  for (const Entry* entry : look.table.in(Table::range_of_bucket(bucket), look.now))
    held.push_back(*entry);
  std::vector<Entry>& before = process.held[bucket];
  const auto find = [](const std::vector<Entry>& entries, const Key& key) {
    return std::ranges::find(entries, key,
                             [](const Entry& entry) -> const Key& { return entry.record->key; });
  };
  for (const Entry& old : before) {
    const auto at = find(held, old.record->key);
    if (at != held.end()) continue;
    const bool is_over = look.now.boot >= std::chrono::seconds(old.dies_at_s);
    if (is_over) process.expired.insert(old.record->version.body);
    if (old.record->key.kind == Kind::kRevocation) process.revoked.erase(old.record->key.subject);
    if (!tells) continue;
    world_.trace.line([&] {
      return text(look.name, " lets go of ", describe(*old.record),
                  is_over ? ": it has expired" : "");
    });
  }
  for (const Entry& entry : held) {
    const Record& record = *entry.record;
    const auto at = find(before, record.key);
    if (at != before.end() && at->record->version == record.version) continue;
    fresh.push_back(entry);
    if (record.key.kind == Kind::kRevocation) {
      if (record.body.withdrawn()) {
        process.revoked.erase(record.key.subject);
      } else {
        process.revoked.insert(record.key.subject);
      }
    }
    if (!tells) continue;
    world_.trace.line([&] {
      return text(look.name, record.key.author == look.self ? " says " : " learns ",
                  describe(record),
                  at == before.end() ? "" : text(", in place of ", at->record->version.counter));
    });
  }
  before = std::move(held);
}

bool GossipRules::is_overtaken(const gossip::Key& key, const gossip::Version& version) const {
  const auto newest = newest_.find(key);
  return newest != newest_.end() && version < newest->second;
}

Duration GossipRules::signed_at(const gossip::Version& version) const {
  const auto found = signed_at_.find(version.body);
  return found == signed_at_.end() ? Duration{} : found->second;
}

bool GossipRules::has_expired(const std::string& name, const gossip::Version& version) const {
  const auto process = processes_.find(name);
  return process != processes_.end() && process->second.expired.contains(version.body);
}

void GossipRules::saved(const std::string& name, const NodeId& self) {
  Kept& kept = kept_[self];
  for (const auto& [key, version] : processes_[name].highest) {
    if (key.author != self) continue;
    std::uint64_t& of_key = kept.of_key[key];
    of_key = std::max(of_key, version.incarnation);
    kept.of_all = std::max(kept.of_all, version.incarnation);
  }
}

// A process goes on where its own disk says that an earlier one was: also where
// those records have expired.
void GossipRules::check_signed(const Look& look, const Record& record) {
  if (record.key.author != look.self || shared_.contains(look.self)) return;
  const auto found = kept_.find(look.self);
  if (found == kept_.end()) return;
  const Kept& kept = found->second;
  const auto of_key = kept.of_key.find(record.key);
  const bool is_first = record.version.counter == 1;
  const std::uint64_t least = is_first                      ? kept.of_all
                              : of_key == kept.of_key.end() ? 0
                                                            : of_key->second;
  fail_if(record.version.incarnation < least, "S11", look.name, " signs ", describe(record),
          " under incarnation ", record.version.incarnation, ", and its disk knows ", least);
}

// Each content and its signature once, not for each holder.
void GossipRules::check_content(const Look& look, const RecordPtr& held) {
  const Record& record = *held;
  gossip::Version& newest = newest_.try_emplace(record.key, record.version).first->second;
  newest = std::max(newest, record.version);
  const auto [known, is_first] = genuine_.try_emplace(record.version.body);
  if (is_first) {
    signed_at_[record.version.body] = world_.timeline.now();
    check_signed(look, record);
  }
  std::string& checked = known->second;
  if (checked == record.wire.signature()) return;
  const std::string wrong = what_is_wrong(record);
  if (wrong.empty()) {
    checked = record.wire.signature();
  } else {
    world_.violated("S10", text(look.name, " holds ", describe(record), ": ", wrong));
  }
  const Number number(record.key, record.version.incarnation, record.version.counter);
  const auto [content, is_new] = contents_.try_emplace(number, record.version.body);
  if (is_new) history_[record.key].push_back(held);
  if (content->second != record.version.body && !shared_.contains(record.key.author)) {
    world_.violated(
        "S11", text(record.key.author, " signed two contents of one version: ", describe(record)));
  }
}

std::string GossipRules::what_is_wrong(const Record& record) {
  const Identity& coordinator = coordinator_identity();
  std::string key = coordinator.ed25519_key;
  if (record.key.author != coordinator.id) {
    const auto certified = open_certificate(record.wire.certificate(), coordinator.ed25519_key);
    if (!certified) return "nobody certified its author";
    key = certified->ed25519_key();
    if (protocol::node_id(key) != record.key.author || certified->role() != pb::ROLE_NODE)
      return "the certificate is another's";
    if (record.key.kind == Kind::kRun || record.key.kind == Kind::kRevocation)
      return "only the coordinator may say so";
  }
  return is_signed_by(key, protocol::kRecordDomain, record.wire.body(), record.wire.signature())
             ? ""
             : "the signature is not its author's";
}

void GossipRules::check_version(const Look& look, Process& process, const Record& record) {
  if (process.expired.contains(record.version.body)) {
    world_.violated(
        "S11", text(look.name, " holds ", describe(record), " again, which has expired there"));
  }
  gossip::Version& highest = process.highest.try_emplace(record.key, record.version).first->second;
  if (record.version < highest) {
    world_.violated(
        "S11", text(look.name, " holds ", describe(record),
                    ", and has held a newer one: ", highest.incarnation, ".", highest.counter));
  }
  highest = std::max(highest, record.version);
}

void GossipRules::check_revoked(const Look& look, const Process& process,
                                const std::vector<Entry>& held) {
  for (const Entry& entry : held) {
    if (!process.revoked.contains(entry.record->key.author)) continue;
    if (look.now.boot >= std::chrono::seconds(entry.dies_at_s))
      continue;  // over, and not yet swept out
    world_.violated("S10", text(look.name, " holds ", describe(*entry.record),
                                ", and that its author is revoked"));
  }
}

std::string GossipRules::describe(const Record& record) const {
  const bool by_coordinator = record.by_coordinator;
  const std::string whose = text(
      by_coordinator ? std::string("the coordinator") : world_.trace.node(record.key.author.str()),
      "'s record ", record.version.counter);
  const pb::RecordBody& body = record.body;
  if (record.key.kind == Kind::kRevocation)
    return text(whose, ": ", world_.trace.node(record.key.subject.str()), " is revoked");
  if (record.key.kind == Kind::kRun) {
    const std::string run = world_.trace.run(record.key.run.str());
    if (body.withdrawn()) return text(whose, ": the run ", run, " is gone");
    return text(whose, ": the run ", run, " of ", body.run().experts(), " experts");
  }
  if (record.key.kind == Kind::kExpert) {
    const std::string expert = expert_text(record.key.run.str(), record.key.expert, world_.trace);
    if (body.withdrawn()) return text(whose, ": nothing of ", expert, " any more");
    return text(whose, ": ", expert, " stands at step ", body.expert().step());
  }
  return text(whose, ": it has ", body.node().holds().size() / gossip::kHoldBytes, " objects");
}

}  // namespace skerry::simulation
