// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/fact_publisher.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "coordinator/rooms/router_job.h"
#include "gossip/router_parts.h"
#include "storage/manifest.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kRemembered = 8192;  // records that were found genuine

gossip::Config config_of(gossip::Config config, const protocol::Signer& identity,
                         std::size_t connections, std::uint64_t seed, const std::string& saved,
                         Now now) {
  config.coordinator_key = identity.ed25519_key();
  config.incarnation = gossip::incarnation_after(saved, now.unix_ms, seed);
  config.seed = seed;
  config.peers_wanted = 0;  // they come to it
  config.peers_most = connections;
  return config;
}

}  // namespace

FactPublisher::FactPublisher(const protocol::Signer& identity, std::size_t connections,
                             std::uint64_t seed, const std::string& saved, Now now,
                             const Options& options)
    : verifier_(identity.ed25519_key(), kRemembered, options.checks),
      gossip_(config_of(options.pace, identity, connections, seed, saved, now), identity, verifier_,
              gossip::load_table(saved, verifier_, {}, now), now) {}

std::string FactPublisher::peers(std::size_t limit_bytes, Now now) const {
  gossip::Table some(verifier_.coordinator());
  std::size_t bytes = 0;
  gossip_.table().for_each(now, [&](const gossip::Entry& entry) {
    const gossip::Record& record = *entry.record;
    if (record.key.kind != gossip::Kind::kNode || record.body.withdrawn()) return;
    if (record.body.node().address().empty() || bytes + record.wire.ByteSizeLong() > limit_bytes)
      return;
    bytes += record.wire.ByteSizeLong();
    some.put(entry.record, gossip::Table::age(entry, now), now);
  });
  return gossip::save_table(some, now);
}

void FactPublisher::say(const pb::RecordBody& body, Now now) {
  const Result<void> said = gossip_.say(body, now);
  if (!said) log_error("cannot be told by gossip: " + said.error().message);
}

void FactPublisher::tell(const std::vector<RunFacts>& runs, const std::set<RunId>& deleted,
                         const std::vector<NodeId>& revoked, Now now) {
  for (const RunFacts& facts : runs) tell_run(facts, now);
  deleted_ = deleted;
  withdraw_deleted(now);
  for (const NodeId& node : revoked) {
    if (!revoked_.insert(node).second) continue;
    pb::RecordBody body;
    body.mutable_revocation()->set_node_id(node.str());
    say(body, now);
  }
}

std::optional<RecordsReceived> FactPublisher::hear(Now now) {
  const gossip::Fingerprints& prints = gossip_.table().fingerprints();
  if (prints == heard_ && recalled_ == gossip_.recalled().size()) return std::nullopt;
  heard_ = prints;
  recalled_ = gossip_.recalled().size();
  RecordsReceived heard;
  gossip_.table().for_each(now, [&](const gossip::Entry& entry) {
    const pb::RecordBody& body = entry.record->body;
    if (body.withdrawn()) return;
    if (body.has_revocation()) heard.revoked.emplace_back(body.revocation().node_id());
    if (body.has_run()) heard.runs.push_back(body.run());
  });
  heard.recalled.assign(gossip_.recalled().begin(), gossip_.recalled().end());
  withdraw_deleted(now);
  return heard;
}

void FactPublisher::tell_run(const RunFacts& facts, Now now) {
  const pb::RunInfo& run = facts.about.run();
  std::string bytes = facts.about.SerializeAsString();
  for (const std::uint32_t expert : facts.removed) bytes += text(" without ", expert);
  if (std::string& told = told_[RunId(run.id())]; told != bytes) {
    told = bytes;
    pb::RecordBody body;
    pb::RunRecord& record = *body.mutable_run();
    record.set_run(run.id());
    record.set_name(run.name());
    record.set_dataset(facts.about.dataset().name());
    const std::uint32_t partitions = facts.about.dataset().partitions();
    record.set_experts(partitions);
    for (const std::uint32_t expert : facts.removed) record.add_without(expert);
    if (trains_router(run.spec())) {
      record.set_experts(partitions + 1);
      record.add_without(partitions);
      record.set_trains_router(true);
    }
    *record.mutable_spec() = offer(facts.about);
    for (const pb::DatasetFile& file : facts.about.router()) {
      if (file.role() == "router") *record.mutable_router() = file.object();
    }
    say(body, now);
  }
  for (const pb::ExpertRecord& expert : facts.experts) {
    std::string& told = heads_[{RunId(expert.run()), expert.expert()}];
    if (told == expert.checkpoint().manifest()) continue;
    told = expert.checkpoint().manifest();
    pb::RecordBody body;
    *body.mutable_expert() = expert;
    say(body, now);
  }
}

RunRecords FactPublisher::records_of(const RunId& run, Now now) const {
  RunRecords records{run, {}};
  for (gossip::ExpertHead& each : gossip::expert_heads(gossip_.table(), run, now))
    records.heads.push_back({std::move(each.record), std::move(each.author), each.acknowledged});
  return records;
}

void FactPublisher::withdraw_deleted(Now now) {
  std::set<RunId> gone;
  gossip_.table().for_each(now, [&](const gossip::Entry& entry) {
    const pb::RecordBody& body = entry.record->body;
    if (!body.has_run() || body.withdrawn()) return;
    if (RunId run(body.run().run()); deleted_.contains(run)) gone.insert(std::move(run));
  });
  for (const auto& [run, bytes] : told_) {
    if (deleted_.contains(run)) gone.insert(run);
  }
  for (const RunId& run : gone) {
    told_.erase(run);
    std::erase_if(heads_, [&](const auto& each) { return each.first.run == run; });
    pb::RecordBody body;
    body.mutable_run()->set_run(run.str());
    body.set_withdrawn(true);
    say(body, now);
  }
}

pb::ObjectRef FactPublisher::offer(const pb::EnsembleReply& about) {
  const std::string bytes = about.SerializeAsString();
  storage::Manifest manifest;
  manifest.kind = storage::ManifestKind::kFile;
  manifest.name = "run.pb";
  storage::ManifestPart& part = manifest.parts.emplace_back();
  part.name = storage::kPartFile;
  Object object;
  for (std::size_t at = 0; at < bytes.size(); at += storage::kMaxChunkBytes) {
    std::string chunk = bytes.substr(at, storage::kMaxChunkBytes);
    const Hash hash = blake2b(chunk);
    part.chunks.push_back({hash, static_cast<std::uint32_t>(chunk.size())});
    object[hash] = std::move(chunk);
  }
  const auto named = storage::encode_manifest(std::move(manifest));
  SKERRY_CHECK(named.has_value(), "a specification's manifest is one");
  object[named->name] = named->encoded;
  pb::ObjectRef ref;
  ref.set_manifest(named->name.raw());
  ref.set_manifest_bytes(named->encoded.size());
  ref.set_bytes(bytes.size());
  ref.set_name("run.pb");
  offered_[named->name] = std::move(object);
  return ref;
}

const std::string* FactPublisher::read(const Hash& object, const Hash& chunk) const {
  const auto offered = offered_.find(object);
  if (offered == offered_.end()) return nullptr;
  const auto found = offered->second.find(chunk);
  return found == offered->second.end() ? nullptr : &found->second;
}

}  // namespace skerry::coordinator
