// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/dataset_writer.h"

#include <filesystem>

#include "base/text.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using storage::bytes_of_values;

Result<void> write_samples(const std::string& path, const ImageSet& images,
                           std::span<const std::uint32_t> rows,
                           const std::vector<std::int32_t>& captions,
                           const std::vector<std::int32_t>* partitions) {
  const PixelView& view = images.pixels;
  std::vector<std::uint8_t> pixels;
  pixels.reserve(rows.size() * view.image_bytes());
  std::vector<std::int32_t> labels;
  for (const std::uint32_t row : rows) {
    const auto image = view.image(row);
    pixels.insert(pixels.end(), image.begin(), image.end());
    labels.push_back(images.labels[row]);
  }
  const std::uint64_t n = rows.size(), c = static_cast<std::uint64_t>(view.channels),
                      s = static_cast<std::uint64_t>(view.size);
  std::vector<storage::TensorView> tensors{
      {view.latents ? "latents" : "images",
       view.latents ? storage::DType::kF16 : storage::DType::kU8,
       {n, c, s, s},
       bytes_of_values<std::uint8_t>(pixels)},
      {"labels", storage::DType::kI32, {n}, bytes_of_values<std::int32_t>(labels)}};
  if (!captions.empty()) {
    tensors.push_back(
        {"caption", storage::DType::kI32, {n}, bytes_of_values<std::int32_t>(captions)});
  }
  if (partitions != nullptr) {
    tensors.push_back(
        {"partitions", storage::DType::kI32, {n}, bytes_of_values<std::int32_t>(*partitions)});
  }
  return storage::write_safetensors(path, tensors, {});
}

// RETURNS: the caption of each image; nothing if there are no captions.
Result<std::vector<std::int32_t>> write_captions(const std::string& folder,
                                                 const Captions* captions, const std::string& of,
                                                 std::int32_t partition,
                                                 std::span<const std::uint32_t> rows,
                                                 std::vector<DatasetFile>& files) {
  if (captions == nullptr) return std::vector<std::int32_t>();
  const std::string name = text("captions-", of, ".safetensors");
  ASSIGN_OR_RETURN(std::vector<std::int32_t> numbers, captions->write(folder + "/" + name, rows));
  ASSIGN_OR_RETURN(DatasetFile entry, file_entry(folder, name, "captions", partition, rows.size()));
  files.push_back(std::move(entry));
  return numbers;
}

}  // namespace

Result<DatasetFile> file_entry(const std::string& folder, std::string name, std::string role,
                               std::int32_t partition, std::uint64_t samples) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(folder + "/" + name, error);
  if (error) return fail(ErrorCode::kIo, text(folder, "/", name, ": ", error.message()));
  return DatasetFile{std::move(name), std::move(role), partition, samples, bytes};
}

Result<void> write_shards(const std::string& folder, const ImageSet& images,
                          const Captions* captions, std::int32_t partition,
                          std::span<const std::uint32_t> rows, std::vector<DatasetFile>& files) {
  const std::uint64_t total = rows.size() * images.pixels.image_bytes();
  const std::size_t shards =
      std::max<std::size_t>(1, (total + kMaxShardBytes - 1) / kMaxShardBytes);
  for (std::size_t i = 0; i < shards; ++i) {
    const std::size_t begin = rows.size() * i / shards, end = rows.size() * (i + 1) / shards;
    const std::string name = text("shard-", partition, '-', i, ".safetensors");
    const auto these = rows.subspan(begin, end - begin);
    ASSIGN_OR_RETURN(
        const std::vector<std::int32_t> numbers,
        write_captions(folder, captions, text(partition, '-', i), partition, these, files));
    TRY(write_samples(folder + "/" + name, images, these, numbers, nullptr));
    ASSIGN_OR_RETURN(DatasetFile entry, file_entry(folder, name, "shard", partition, end - begin));
    files.push_back(std::move(entry));
  }
  return {};
}

Result<void> write_held_back(const std::string& folder, const std::string& role,
                             const ImageSet& images, const Captions* captions,
                             std::span<const std::uint32_t> rows,
                             std::span<const std::int32_t> partitions,
                             std::vector<DatasetFile>& files) {
  ASSIGN_OR_RETURN(const std::vector<std::int32_t> numbers,
                   write_captions(folder, captions, role, -1, rows, files));
  const std::vector<std::int32_t> column(partitions.begin(), partitions.end());
  const std::string name = role + ".safetensors";
  TRY(write_samples(folder + "/" + name, images, rows, numbers, &column));
  ASSIGN_OR_RETURN(DatasetFile entry, file_entry(folder, name, role, -1, rows.size()));
  files.push_back(std::move(entry));
  return {};
}

}  // namespace skerry::diffusion
