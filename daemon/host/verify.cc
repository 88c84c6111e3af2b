// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/verify.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "storage/files.h"

namespace skerry::daemon {
namespace {

using Json = nlohmann::ordered_json;

std::string what(const storage::ObjectInfo& info) {
  if (info.kind == storage::ManifestKind::kCheckpoint)
    return text("run ", info.facts.run, ", expert ", info.facts.expert, ", step ", info.facts.step);
  return text("file ", info.facts.name);
}

}  // namespace

DiskVerdict verify_disk(const storage::ObjectStore& objects,
                        const std::function<void(std::uint64_t, std::uint64_t)>& shown) {
  const std::vector<storage::ObjectInfo> all = objects.list();
  std::uint64_t total = 0;
  for (const storage::ObjectInfo& info : all) total += info.bytes;
  DiskVerdict verdict{.objects = all.size()};
  for (const storage::ObjectInfo& info : all) {
    const std::uint64_t end = verdict.bytes + info.bytes;
    const auto named = objects.manifest(info.name);
    DamagedObject damaged{info, {}};
    if (named) {
      for (const storage::Chunk& chunk : storage::distinct_chunks(named->manifest)) {
        if (!objects.read(info.name, chunk.hash)) damaged.chunks.push_back(chunk.hash);
        verdict.bytes += chunk.bytes;
        shown(verdict.bytes, total);
      }
    }
    verdict.bytes = end;  // a chunk may occur twice
    if (!named || !damaged.chunks.empty()) verdict.damaged.push_back(std::move(damaged));
  }
  shown(total, total);
  return verdict;
}

std::string verdict_json(const DiskVerdict& verdict) {
  Json list = Json::array();
  for (const DamagedObject& each : verdict.damaged) {
    const bool is_checkpoint = each.info.kind == storage::ManifestKind::kCheckpoint;
    Json chunks = Json::array();
    for (const Hash& chunk : each.chunks) chunks.push_back(chunk.hex());
    list.push_back({{"object", each.info.name.hex()},
                    {"kind", is_checkpoint ? "checkpoint" : "file"},
                    {"run", is_checkpoint ? Json(each.info.facts.run.str()) : Json()},
                    {"expert", is_checkpoint ? Json(each.info.facts.expert) : Json()},
                    {"step", is_checkpoint ? Json(each.info.facts.step) : Json()},
                    {"name", is_checkpoint ? Json() : Json(each.info.facts.name)},
                    {"damaged_chunks", std::move(chunks)}});
  }
  const Json said = {{"format", 1},
                     {"checked", verdict.objects},
                     {"bytes", verdict.bytes},
                     {"damaged", std::move(list)}};
  return said.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string verdict_words(const DiskVerdict& verdict) {
  std::string words = text(
      "checked ", verdict.objects, " objects, ", human_bytes(verdict.bytes), ": ",
      verdict.damaged.empty() ? std::string("all whole") : text(verdict.damaged.size(), " damaged"),
      "\n");
  for (const DamagedObject& each : verdict.damaged) {
    words += text(what(each.info), ", object ", each.info.name.short_hex(), ": ");
    words += each.chunks.empty() ? "its manifest cannot be read"
                                 : text(each.chunks.size(), " chunks found wrong");
    words += "; the daemon fetches again what it needs of it, at once where it runs\n";
  }
  return words;
}

Result<void> write_distrusted(const std::string& path, const std::vector<DamagedObject>& damaged) {
  ASSIGN_OR_RETURN(storage::PartialFile file, storage::PartialFile::create(path));
  for (const DamagedObject& each : damaged) TRY(file.append(each.info.name.hex() + "\n"));
  return file.commit();
}

std::vector<Hash> take_distrusted(const std::string& path) {
  std::vector<Hash> named;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Result<std::string> raw = from_hex(line);
    const Result<Hash> hash = Hash::from_raw(raw.value_or(""));
    if (hash) named.push_back(*hash);
  }
  std::error_code ignored;
  if (file.is_open()) std::filesystem::remove(path, ignored);
  return named;
}

}  // namespace skerry::daemon
