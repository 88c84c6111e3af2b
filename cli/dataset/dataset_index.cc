// SPDX-License-Identifier: Apache-2.0
#include "cli/dataset/dataset_index.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "cli/shell/output.h"
#include "protocol/limits.h"

namespace skerry::cli {
namespace {

constexpr std::size_t kIndexBytes = 128 << 10;

Error damaged(const std::string& path, const std::string& what) {
  return fail(ErrorCode::kCorrupt, text(path, ": ", what, ": ingest the images again"));
}

Result<DatasetFileEntry> parse_file(const Json& json, const DatasetIndex& index,
                                    const std::string& path) {
  DatasetFileEntry file{json.at("name").get<std::string>(), json.at("role").get<std::string>(),
                        json.at("partition").get<std::int32_t>(),
                        json.at("samples").get<std::uint64_t>(),
                        json.at("bytes").get<std::uint64_t>()};
  constexpr std::array<std::string_view, 6> kRoles{"shard", "router", "partition",
                                                   "fit",   "test",   "captions"};
  const bool named = !file.name.empty() && file.name.find('/') == std::string::npos &&
                     file.name != "." && file.name != ".." && printable(file.name) == file.name;
  if (!named) return damaged(path, text("'", printable(file.name), "' is no file name"));
  if (std::find(kRoles.begin(), kRoles.end(), file.role) == kRoles.end() || file.partition < -1 ||
      file.partition >= static_cast<std::int32_t>(index.partitions)) {
    return damaged(path, text("role ", printable(file.role), " of partition ", file.partition,
                              " makes no sense"));
  }
  std::error_code error;
  const std::uint64_t found = std::filesystem::file_size(index.folder + "/" + file.name, error);
  if (error) return damaged(path, text(file.name, " is missing in the folder"));
  if (found != file.bytes) {
    return damaged(path, text(file.name, " should have ", file.bytes, " bytes, found ", found));
  }
  return file;
}

Result<std::optional<DatasetText>> parse_text(const Json& json, const std::string& path) {
  const auto found = json.find("text");
  if (found == json.end()) return std::nullopt;
  DatasetText read{found->at("dim").get<std::uint32_t>(), found->at("encoder").get<std::string>(),
                   found->at("longest").get<std::uint32_t>(),
                   found->value("sided", std::uint64_t{0})};
  constexpr std::uint32_t kMaxDim = 1 << 17, kMaxTokens = 1 << 16;
  constexpr std::size_t kMaxName = 64;
  const bool sane = read.dim >= 1 && read.dim <= kMaxDim && read.longest >= 1 &&
                    read.longest <= kMaxTokens && read.encoder.size() <= kMaxName &&
                    printable(read.encoder) == read.encoder;
  if (!sane) return damaged(path, text("text: ", printable(found->dump()), " makes no sense"));
  return read;
}

// nlohmann's exceptions say which key is missing or of another type.
Result<DatasetIndex> parse_index(const std::string& folder, const std::string& path,
                                 std::string bytes) try {
  DatasetIndex index;
  const Json json = Json::parse(bytes);
  if (json.at("format").get<int>() != 1) {
    return fail(ErrorCode::kInvalid,
                text(path, ": format ", json.at("format").dump(),
                     " is not known, expected 1: was it made by another version?"));
  }
  index.folder = folder;
  index.partitions = json.at("partitions").get<std::uint32_t>();
  index.samples = json.at("samples").get<std::uint64_t>();
  index.channels = json.at("channels").get<std::uint32_t>();
  index.image_size = json.at("image_size").get<std::uint32_t>();
  index.latents = json.contains("latents");
  ASSIGN_OR_RETURN(index.text, parse_text(json, path));
  index.classes = json.at("classes").get<std::vector<std::string>>();
  index.partition_samples = json.at("partition_samples").get<std::vector<std::uint64_t>>();
  index.skipped = json.value("skipped", std::uint64_t{0});
  for (const Json& example : json.value("skipped_examples", Json::array())) {
    index.skipped_examples.emplace_back(example.at("path").get<std::string>(),
                                        example.at("reason").get<std::string>());
  }
  if (index.partitions == 0 || index.partitions > protocol::kPartitions ||
      index.partition_samples.size() != index.partitions) {
    return damaged(path, text(index.partitions, " partitions, but samples of ",
                              index.partition_samples.size()));
  }
  for (const Json& file : json.at("files")) {
    ASSIGN_OR_RETURN(DatasetFileEntry entry, parse_file(file, index, path));
    index.files.push_back(std::move(entry));
  }
  if (index.files.empty() || index.files.size() > protocol::kDatasetFiles) {
    return damaged(path, text("expected from 1 to ", protocol::kDatasetFiles, " files, found ",
                              index.files.size()));
  }
  index.json = std::move(bytes);
  return index;
} catch (const nlohmann::json::exception& error) {
  return damaged(path, error.what());
}

}  // namespace

bool is_dataset_folder(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder + "/dataset.json", ignored);
}

Result<DatasetIndex> read_dataset_index(const std::string& folder) {
  const std::string path = folder + "/dataset.json";
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return fail(ErrorCode::kNotFound, text("cannot read ", path, ": is this an ingested dataset?"));
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() > kIndexBytes) {
    return damaged(path, text("expected at most ", human_bytes(kIndexBytes), ", found ",
                              human_bytes(bytes.size())));
  }
  return parse_index(folder, path, std::move(bytes));
}

}  // namespace skerry::cli
