// SPDX-License-Identifier: Apache-2.0
// From what is durable to a checked state: anything that does not fit refuses
// the start, by the name of its key (S16).
#include <set>
#include <utility>

#include "base/text.h"
#include "coordinator/core/keys.h"
#include "coordinator/core/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::uint32_t kFormat = 1;

Error corrupt(const std::string& key, const std::string& what) {
  return fail(ErrorCode::kCorrupt, text("the coordinator's state is damaged at \"", key,
                                        "\": ", what, "; restore a backup"));
}

template <class Message>
Result<void> parse(const KeyValue& entry, Message& out) {
  if (!out.ParseFromString(entry.value)) return corrupt(entry.key, "it does not parse");
  return {};
}

template <class Record, class Room>
Result<void> load_record(const KeyValue& entry, Kind kind, Room& room) {
  Record record;
  TRY(parse(entry, record));
  const std::string key = key_of(kind, id_of(record));
  if (entry.key != key) return corrupt(entry.key, text("its value belongs under \"", key, "\""));
  const std::string wrong = room.load(std::move(record));
  return wrong.empty() ? Result<void>() : corrupt(entry.key, wrong);
}

}  // namespace

Result<void> Machine::load_entry(const KeyValue& entry) {
  const std::string& key = entry.key;
  if (key == kMetaKey) {
    stored::Meta record;
    TRY(parse(entry, record));
    meta = Tracked(std::move(record));
    meta.list_in(meta_changes);
    return {};
  }
  if (key.starts_with(kNodePrefix)) return load_record<stored::Node>(entry, Kind::kNode, roster);
  if (key.starts_with(kTokenPrefix)) return load_record<stored::Token>(entry, Kind::kToken, roster);
  if (key.starts_with(kDatasetPrefix))
    return load_record<stored::Dataset>(entry, Kind::kDataset, datasets);
  if (key.starts_with(kRunPrefix)) return load_record<stored::Run>(entry, Kind::kRun, runs);
  if (key.starts_with(kExpertPrefix))
    return load_record<stored::Expert>(entry, Kind::kExpert, runs);
  if (key.starts_with(kDeletedPrefix))
    return load_record<stored::DeletedRun>(entry, Kind::kDeleted, runs);
  if (key.starts_with(kRevokedPrefix))
    return load_record<stored::RevokedKey>(entry, Kind::kRevoked, roster);
  if (key.starts_with(kSpeedPrefix)) return load_record<stored::Speed>(entry, Kind::kSpeed, speeds);
  if (key.starts_with(kSpendingPrefix))
    return load_record<stored::Spending>(entry, Kind::kSpending, spending);
  if (key.starts_with(kHistoryPrefix))
    return load_record<stored::HistoryPart>(entry, Kind::kHistory, history);
  if (key.starts_with(kEventPrefix)) return load_record<pb::Event>(entry, Kind::kEvent, events);
  return corrupt(key, "nothing of this version has such a key");
}

Result<void> Machine::load(std::span<const KeyValue> state) {
  const auto is_expert = [](const KeyValue& entry) { return entry.key.starts_with(kExpertPrefix); };
  for (const KeyValue& entry : state) {
    if (!is_expert(entry)) TRY(load_entry(entry));
  }
  for (const KeyValue& entry : state) {
    if (is_expert(entry)) TRY(load_entry(entry));
  }
  if (state.empty()) {
    meta.change().set_format(kFormat);
    meta.change().set_generation(1);
    return {};
  }
  if (meta->format() == 0) return corrupt(kMetaKey, "it is missing");
  if (meta->format() != kFormat) {
    return fail(ErrorCode::kInvalid,
                text("the data folder has format ", meta->format(), ", this program reads format ",
                     kFormat, "; use the version of skerry-coordinator that wrote it"));
  }
  if (meta->generation() == 0 || meta->generation() > protocol::kGenerations)
    return corrupt(kMetaKey, "its generation is wrong");
  return check_links();
}

Result<void> Machine::check_links() {
  std::set<std::pair<NodeId, std::uint32_t>> held;
  for (auto& [id, run] : runs.all()) {
    if (datasets.find(DatasetName(run.record->spec().dataset())) == nullptr)
      return corrupt(key_of(Kind::kRun, id), "its dataset is missing");
    const std::string& init = run.record->spec().init();
    if (!init.empty() && (datasets.find(DatasetName(init)) == nullptr ||
                          !is_weights(datasets.content(DatasetName(init)))))
      return corrupt(key_of(Kind::kRun, id), "the weights that it starts from are missing");
    for (std::uint32_t index = 0; index < run.record->experts(); ++index) {
      Expert& expert = run.experts[index];
      const std::string key = expert_key({id, index});
      if (expert.record->run() != id.str()) return corrupt(key, "it is missing");
      if (expert.epoch().generation() > meta->generation())
        return corrupt(key, "its epoch is of the future");
      for (const auto& checkpoint : expert.record->checkpoints())
        objects.name(checkpoint.manifest());
      if (!expert.has_lease()) continue;
      Node* node = roster.find(expert.holder());
      if (node == nullptr) return corrupt(key, "its holder is not rostered");
      bool is_taken = !held.emplace(node->id(), expert.record->lease().slot()).second;
      for (const std::uint32_t more : expert.record->lease().more_slots())
        is_taken |= !held.emplace(node->id(), more).second;
      if (is_taken) return corrupt(key, "a slot of its lease is another's");
      leases.load(*node, expert);
    }
  }
  for (const auto& [id, account] : spending.all()) {
    if (!id.empty() && !runs.all().contains(id))
      return corrupt(key_of(Kind::kSpending, id), "its run is missing");
  }
  for (const auto& [id, part] : history.all()) {
    const auto run = runs.all().find(RunId(part.record->run()));
    if (run == runs.all().end() || part.record->expert() >= run->second.record->experts())
      return corrupt(key_of(Kind::kHistory, id), "its expert is missing");
  }
  datasets.visit_files([&](const DatasetName&, const pb::DatasetFile& file) {
    objects.name(file.object().manifest());
  });
  return {};
}

Result<std::vector<KeyValue>> Core::restored(std::span<const KeyValue> state, std::int64_t unix_ms,
                                             Tokens tokens) {
  std::vector<KeyValue> restored(state.begin(), state.end());
  bool has_meta = false;
  for (KeyValue& entry : restored) {
    if (entry.key.starts_with(kTokenPrefix) && tokens == Tokens::kExpire) {
      stored::Token token;
      TRY(parse(entry, token));
      token.mutable_info()->set_expires_unix_ms(std::min(token.info().expires_unix_ms(), unix_ms));
      token.mutable_info()->set_revoked(
          true);  // also for a coordinator whose clock is behind this one
      entry.value = token.SerializeAsString();
    }
    if (entry.key != kMetaKey) continue;
    has_meta = true;
    stored::Meta meta;
    TRY(parse(entry, meta));
    if (meta.generation() >= protocol::kGenerations)
      return fail(ErrorCode::kExhausted, "the epochs' generations are used up");
    meta.set_recalls_revocations(true);
    meta.set_generation(meta.generation() + 1);
    meta.set_restored_generation(meta.generation());
    meta.set_restored_unix_ms(unix_ms);
    entry.value = meta.SerializeAsString();
  }
  if (!has_meta) return corrupt(kMetaKey, "it is missing");
  return restored;
}

// Of the second generation: the first may have been the lost one's. One that
// was restored before says so through its nodes.
std::vector<KeyValue> Core::fresh(std::int64_t unix_ms) {
  constexpr std::uint32_t kSecond = 2;
  stored::Meta meta;
  meta.set_format(kFormat);
  meta.set_generation(kSecond);
  meta.set_restored_generation(kSecond);
  meta.set_restored_unix_ms(unix_ms);
  meta.set_recalls_revocations(true);
  return {{kMetaKey, meta.SerializeAsString()}};
}

}  // namespace skerry::coordinator
