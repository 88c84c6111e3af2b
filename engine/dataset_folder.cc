// SPDX-License-Identifier: Apache-2.0
#include "engine/dataset_folder.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace skerry::engine {

Result<DatasetFolder> open_dataset_folder(const std::string& folder,
                                          std::optional<std::uint32_t> partition) try {
  const std::string path = folder + "/dataset.json";
  std::ifstream file(path);
  if (!file)
    return fail(ErrorCode::kNotFound,
                text("cannot read ", path, ": `skerry-engine ingest` makes it"));
  const auto index = nlohmann::json::parse(file);
  DatasetFolder dataset;
  dataset.image_size = index.at("image_size").get<std::uint32_t>();
  dataset.channels = index.at("channels").get<std::uint32_t>();
  dataset.classes = static_cast<std::uint32_t>(index.at("classes").size());
  dataset.partitions = index.at("partitions").get<std::uint32_t>();
  if (const auto text = index.find("text"); text != index.end()) {
    dataset.caption_dim = text->at("dim").get<std::uint32_t>();
    dataset.caption_tokens = text->at("longest").get<std::uint32_t>();
  }
  for (const auto& entry : index.at("files")) {
    const bool captions = entry.at("role") == "captions";
    const auto its = entry.at("partition").get<std::int64_t>();
    if ((entry.at("role") != "shard" && !captions) || its < 0) continue;
    if (partition && its != *partition) continue;
    const std::string file_path = folder + "/" + entry.at("name").get<std::string>();
    (captions ? dataset.captions : dataset.shards).push_back(file_path);
    if (!captions) dataset.shard_partitions.push_back(static_cast<std::uint32_t>(its));
  }
  if (dataset.shards.empty()) {
    return fail(ErrorCode::kNotFound,
                text(path, " lists no shard", partition ? text(" of partition ", *partition) : ""));
  }
  return dataset;
} catch (const nlohmann::json::exception& error) {
  return fail(ErrorCode::kCorrupt, text(folder, "/dataset.json: ", error.what()));
}

}  // namespace skerry::engine
