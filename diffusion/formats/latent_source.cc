// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/text.h"
#include "diffusion/formats/source.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;

Error named(const std::string& path, const Error& error) {
  return fail(error.code, text(path, ": ", error.message));
}

Result<NumberArray> array_of(const storage::TensorView& tensor) {
  using storage::DType;
  const bool floats =
      tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32 || tensor.dtype == DType::kF64;
  const bool whole = tensor.dtype == DType::kI8 || tensor.dtype == DType::kI16 ||
                     tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64;
  if (!floats && !whole && tensor.dtype != DType::kU8) {
    return fail(ErrorCode::kInvalid,
                text("expected `", tensor.name, "` as F16, F32 or whole numbers, found ",
                     storage::name_of(tensor.dtype)));
  }
  return NumberArray{tensor.shape,
                     floats  ? 'f'
                     : whole ? 'i'
                             : 'u',
                     storage::bytes_of(tensor.dtype), tensor.data};
}

// One file, open: views into it.
struct OpenFile {
  storage::MappedFile npy, npy_labels;
  storage::Safetensors safetensors;
  LatentBlock latents;
  std::vector<std::int32_t> labels;  // empty: none
};

Result<void> open_npy(const std::string& path, OpenFile& file) {
  ASSIGN_OR_RETURN(file.npy, storage::MappedFile::open(path));
  ASSIGN_OR_RETURN(const NumberArray array, parse_npy_array(file.npy.bytes()));
  ASSIGN_OR_RETURN(file.latents, latents_of(array));
  const std::string beside = labels_path(path);
  std::error_code error;
  if (beside.empty() || !fs::exists(beside, error)) return {};
  ASSIGN_OR_RETURN(file.npy_labels, storage::MappedFile::open(beside));
  const Result<NumberArray> labels = parse_npy_array(file.npy_labels.bytes());
  if (!labels) return named(beside, labels.error());
  auto numbers = labels_of(*labels, file.latents.count);
  if (!numbers) return named(beside, numbers.error());
  file.labels = std::move(*numbers);
  return {};
}

Result<void> open_safetensors(const std::string& path, OpenFile& file) {
  ASSIGN_OR_RETURN(file.safetensors, storage::Safetensors::open(path));
  const storage::TensorInfo* const latents = file.safetensors.header().find("latents");
  const storage::TensorInfo* const labels = file.safetensors.header().find("labels");
  if (latents == nullptr) {
    return fail(ErrorCode::kInvalid,
                text("expected a tensor `latents` [N,C,S,S], and `labels` [N] where there "
                     "are any, found neither it nor latents by another name among ",
                     file.safetensors.header().tensors.size(), " tensors"));
  }
  ASSIGN_OR_RETURN(const NumberArray array, array_of(file.safetensors.view(*latents)));
  ASSIGN_OR_RETURN(file.latents, latents_of(array));
  if (labels == nullptr) return {};
  ASSIGN_OR_RETURN(const NumberArray numbers, array_of(file.safetensors.view(*labels)));
  ASSIGN_OR_RETURN(file.labels, labels_of(numbers, file.latents.count));
  return {};
}

class LatentSource final : public Source {
 public:
  LatentSource(std::string folder, std::vector<std::string> files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  Result<std::optional<SourceSample>> next() override {
    if (row_ == file_.latents.count) {
      if (next_file_ == files_.size()) return std::optional<SourceSample>();
      TRY(open(files_[next_file_++]));
    }
    SourceSample sample{.path = text(relative_, '[', row_, ']'), .latent = file_.latents.at(row_)};
    if (!file_.labels.empty()) {
      if (const std::int32_t label = file_.labels[row_]; label >= 0) sample.label = text(label);
    } else if (const std::size_t slash = relative_.find('/'); slash != std::string::npos) {
      sample.label = relative_.substr(0, slash);
    }
    ++row_;
    return std::optional<SourceSample>(std::move(sample));
  }

  std::uint64_t expected_samples() const override {
    return files_.size() == 1 ? file_.latents.count : 0;
  }

 private:
  Result<void> open(const std::string& relative) {
    relative_ = relative;
    row_ = 0;
    file_ = {};
    const std::string path = (fs::path(folder_) / relative).string();
    const bool npy = lower_extension(path) == ".npy";
    const Result<void> opened = npy ? open_npy(path, file_) : open_safetensors(path, file_);
    if (!opened) return named(path, opened.error());
    return {};
  }

  std::string folder_, relative_;
  std::vector<std::string> files_;
  std::size_t next_file_ = 0;
  OpenFile file_;
  std::uint64_t row_ = 0;
};

}  // namespace

bool is_latents_name(std::string_view name) {
  const std::string extension = lower_extension(name);
  return extension == ".npy" || extension == ".safetensors";
}

std::string labels_path(const std::string& latents) {
  constexpr std::string_view kLatents = "latents";
  const std::size_t slash = latents.rfind('/'), found = latents.rfind(kLatents);
  if (found == std::string::npos || (slash != std::string::npos && found < slash)) return "";
  return std::string(latents).replace(found, kLatents.size(), "labels");
}

Result<std::unique_ptr<Source>> open_latent_source(const std::string& folder,
                                                   std::vector<std::string> files) {
  return std::unique_ptr<Source>(std::make_unique<LatentSource>(folder, std::move(files)));
}

}  // namespace skerry::diffusion
