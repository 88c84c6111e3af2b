// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/machine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "coordinator/host/blob_traffic.h"
#include "storage/manifest.h"

namespace skerry::simulation {
namespace {

std::string path_of(const Hash& object) { return text(kObjectsFolder, "/", object.hex()); }
std::string whole_key(const Hash& object) { return "object/" + object.hex(); }
std::string partial_key(const Hash& object) { return "partial/" + object.hex(); }

std::string content_of(storage::MemoryFiles& files, const std::string& path) {
  const auto file = files.open(path, storage::Files::Open::kRead);
  if (!file) return {};
  std::string bytes((*file)->size().value_or(0), '\0');
  (void)(*file)->read_at(0, bytes);
  return bytes;
}

// The family in which a store keeps a checkpoint; none: it keeps none of it.
std::optional<storage::FamilyName> family_of(const storage::Store& store, const Hash& object) {
  for (const storage::FamilyName& family : store.families()) {
    if (family.str().ends_with("-" + object.short_hex())) return family;
  }
  return std::nullopt;
}

}  // namespace

Now MachineClock::now() const {
  const Duration time = timeline_.now();
  const auto drifted = static_cast<std::int64_t>(static_cast<double>(time.count()) * (1 + drift_));
  return {booted_ + Duration(drifted), kEpochStart + time / milliseconds(1) + wall_offset_ms_};
}

Duration MachineClock::until(Duration boot) const {
  const Duration wait = std::max(boot - now().boot, Duration{});
  return Duration(static_cast<std::int64_t>(static_cast<double>(wait.count()) / (1 + drift_))) +
         Duration(1000);
}

// ---- Disk ----

Result<void> Disk::Store::has_room(std::size_t bytes, bool metadata) const {
  if (bytes > 0 && (metadata ? is_full_of_state : is_full))
    return fail(ErrorCode::kExhausted, "the disk is full");
  return {};
}

Result<void> Disk::Store::do_write(std::span<const storage::Write> batch) {
  TRY(MemoryStore::do_write(batch));
  for (const storage::Write& each : batch) {
    if (written) written(each.key);
    if (mirrored.empty() || !each.key.starts_with(mirrored)) continue;
    if (each.value) {
      mirror[each.key.substr(mirrored.size())] = *each.value;
    } else {
      mirror.erase(each.key.substr(mirrored.size()));
    }
  }
  return {};
}

void Disk::copy_from(const Disk& other) {
  process_ended(0, true);  // what was under way to the old one is gone
  kept.copy_from(other.kept);
  kept.mirror = other.kept.mirror;
  kept_files.copy_from(other.kept_files);
}

bool Disk::holds(const Object& object) const {
  const auto manifest = kept.get(whole_key(object.name));
  if (!manifest || *manifest != object.manifest) return false;
  const auto family = object.checkpoint ? family_of(kept, object.name) : std::nullopt;
  if (family) {
    const auto chunk = kept.get_chunk(*family, object.chunk);
    return chunk && *chunk == object.content;
  }
  return content_of(const_cast<storage::MemoryFiles&>(kept_files), path_of(object.name))
      .ends_with(object.content);
}

bool Disk::is_there(const Object& object) const {
  const auto manifest = kept.get(whole_key(object.name));
  return manifest && *manifest;
}

Result<Object> Disk::checkpoint(const Hash& name) const {
  ASSIGN_OR_RETURN(auto encoded, kept.get(whole_key(name)));
  if (!encoded) return fail(ErrorCode::kNotFound, "its manifest is not on the disk");
  ASSIGN_OR_RETURN(storage::NamedManifest named, storage::decode_manifest(std::move(*encoded)));
  const std::vector<storage::Chunk> chunks = storage::distinct_chunks(named.manifest);
  if (named.name != name || chunks.size() != 1)
    return fail(ErrorCode::kCorrupt, "its manifest is another's");
  Object object;
  object.name = name;
  object.checkpoint = true;
  object.facts = coordinator::object_facts(named.manifest);
  object.chunk = chunks.front().hash;
  const std::string file = content_of(const_cast<storage::MemoryFiles&>(kept_files), path_of(name));
  if (file.size() >= chunks.front().bytes)
    object.content = file.substr(file.size() - chunks.front().bytes);
  if (blake2b(object.content) != object.chunk)
    return fail(ErrorCode::kCorrupt, "its bytes are not on the disk");
  object.manifest = std::move(named.encoded);
  return object;
}

bool Disk::damage(const Hash& object) {
  if (const auto family = family_of(kept, object)) {
    const auto chunks = kept.chunks(*family);
    if (!chunks || chunks->empty()) return false;
    kept.damage_chunk(*family, chunks->front());
    return true;
  }
  const std::string bytes = content_of(kept_files, path_of(object));
  if (bytes.empty()) return false;
  kept_files.damage(path_of(object), bytes.size() - 1);
  return true;
}

void Disk::repair(const Object& object) {
  const auto found = kept.get(whole_key(object.name));
  const auto part = kept.get(partial_key(object.name));
  const bool is_known = (found && *found) || (part && *part);
  if (!is_known) return;
  if (const auto family = family_of(kept, object.name)) {
    SKERRY_CHECK(!kept.is_full, "there is room to repair");
    (void)kept.put_chunk(*family, object.chunk, object.content);
  } else {
    for (const std::string& path : {path_of(object.name), path_of(object.name) + ".partial"}) {
      if (kept_files.exists(path)) (void)kept_files.remove(path);
    }
    const auto file = kept_files.open(path_of(object.name), storage::Files::Open::kCreate);
    SKERRY_CHECK(file.has_value(), "files in memory take whatever comes");
    (void)(*file)->write_at(0, object.content);
  }
  const storage::Write writes[] = {{whole_key(object.name), object.manifest},
                                   {partial_key(object.name), std::nullopt}};
  (void)kept.write(writes, storage::Room::kLast);
}

void Disk::flip_reads(double share, std::uint64_t seed) {
  flips_ = share > 0;
  store.flip_reads(share, seed);
  files.flip_reads(share, seed);
}

void Disk::heal() {
  make_room();
  pace = {};
  flip_reads(0, 1);
  for (int operation = 0; operation < 6; ++operation) {
    store.fail_at(static_cast<storage::StoreOperation>(operation), 0);
    files.fail_at(static_cast<storage::FileOperation>(operation), 0);
  }
}

bool Disk::is_outlived(Duration now) {
  constexpr Duration kEndsWithin = seconds(10);
  if (!store.failed()) {
    failed_at_.reset();
  } else if (!failed_at_) {
    failed_at_ = now;
  }
  return failed_at_ && now - *failed_at_ > kEndsWithin;
}

void Disk::process_ended(std::uint64_t seed, bool machine) {
  failed_at_.reset();
  store.crash(seed);
  if (!machine) return;
  kept_files.set_capacity(std::numeric_limits<std::uint64_t>::max());
  files.crash(seed);
  kept_files.set_capacity(free_bytes_);
}

void Disk::set_free_bytes(std::uint64_t bytes) {
  free_bytes_ = bytes;
  kept_files.set_capacity(bytes);
}

// ---- Worker ----

void TimedWorker::run(Job job) {
  jobs_.push_back({std::move(job), std::exchange(longer_, {})});
  plan();
}

void TimedWorker::finish() { kill(jobs_.size()); }

void TimedWorker::kill(std::size_t were_done) {
  for (; were_done > 0 && !jobs_.empty(); --were_done) {
    const Job job = std::move(jobs_.front().job);
    jobs_.pop_front();
    [[maybe_unused]] const Done done = job();
  }
  jobs_.clear();
}

void TimedWorker::go_on() {
  is_stopped_ = false;
  plan();
}

void TimedWorker::plan() {
  if (is_planned_ || is_stopped_ || jobs_.empty()) return;
  is_planned_ = true;
  timeline_.after(takes_() + jobs_.front().longer, [this, alive = alive_] {
    if (*alive) due();
  });
}

void TimedWorker::due() {
  is_planned_ = false;
  if (is_stopped_ || jobs_.empty()) return;
  const Job job = std::move(jobs_.front().job);
  jobs_.pop_front();
  const Done done = job();
  plan();
  finished_(done);
}

// ---- Alarm ----

void Alarm::set(Duration at) {
  at_ = at;
  plan();
}

void Alarm::plan() {
  if (at_ >= planned_) return;
  planned_ = at_;
  timeline_.at(at_, [this, alive = alive_, at = at_] {
    if (!*alive || at != planned_) return;
    planned_ = Duration::max();
    if (timeline_.now() < at_) return plan();
    at_ = Duration::max();
    ring_();
  });
}

}  // namespace skerry::simulation
