// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/dataset_index.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

Error errno_failure(const std::string& path) {
  const ErrorCode code =
      errno == ENOSPC || errno == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo;
  return fail(code, text(path, ": ", std::strerror(errno)));
}

Result<void> write_synced(const std::string& path, const std::string& bytes) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return errno_failure(path);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  Result<void> result;
  if (done < bytes.size() || fsync(descriptor) != 0) result = errno_failure(path);
  close(descriptor);
  return result;
}

Result<void> sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno_failure(folder);
  Result<void> result;
  if (fsync(descriptor) != 0) result = errno_failure(folder);
  close(descriptor);
  return result;
}

}  // namespace

std::string to_json(const DatasetIndex& index) {
  using Json = nlohmann::ordered_json;
  Json json{{"format", 1},
            {"partitions", index.partitions},
            {"samples", index.samples},
            {"channels", index.channels},
            {"image_size", index.image_size},
            {"classes", index.classes},
            {"partition_samples", index.partition_samples},
            {"skipped", index.skipped},
            {"skipped_examples", Json::array()},
            {"files", Json::array()}};
  if (index.latents)
    json["latents"] = {{"scale", index.latents->scale}, {"shift", index.latents->shift}};
  if (index.text) {
    json["text"] = {{"dim", index.text->dim},
                    {"encoder", index.text->encoder},
                    {"longest", index.text->longest}};
    if (index.text->sided > 0) json["text"]["sided"] = index.text->sided;
  }
  for (const SkippedImage& image : index.skipped_examples) {
    json["skipped_examples"].push_back({{"path", image.path}, {"reason", image.reason}});
  }
  for (const DatasetFile& file : index.files) {
    json["files"].push_back({{"name", file.name},
                             {"role", file.role},
                             {"partition", file.partition},
                             {"samples", file.samples},
                             {"bytes", file.bytes}});
  }
  // A file name or a label may be in no encoding at all.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> write_dataset_index(const std::string& folder, const DatasetIndex& index) {
  TRY(write_synced(folder + "/dataset.json", to_json(index)));
  return sync_folder(folder);
}

}  // namespace skerry::diffusion
