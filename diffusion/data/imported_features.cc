// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/imported_features.h"

#include "base/text.h"

namespace skerry::diffusion {
namespace {

Error named(const std::string& path, const Error& error) {
  return fail(error.code, text(path, ": ", error.message));
}

Result<FeatureMatrix> matrix_in(const storage::Safetensors& file) {
  const auto& tensors = file.header().tensors;
  const storage::TensorInfo* found =
      tensors.size() == 1 ? tensors.data() : file.header().find("features");
  if (found == nullptr) {
    return fail(ErrorCode::kInvalid,
                text("expected a tensor `features`, or one tensor alone; found ", tensors.size(),
                     " others"));
  }
  const bool floats = found->dtype == storage::DType::kF16 ||
                      found->dtype == storage::DType::kF32 || found->dtype == storage::DType::kF64;
  if (!floats || found->shape.size() != 2) {
    return fail(ErrorCode::kInvalid,
                "expected F16, F32 or F64 of two dimensions, a row for each sample");
  }
  TRY(check_feature_shape(found->shape[0], found->shape[1]));
  return FeatureMatrix{found->shape[0], found->shape[1], storage::bytes_of(found->dtype),
                       file.view(*found).data};
}

}  // namespace

Result<ImportedFeatures> ImportedFeatures::open(const std::string& path) {
  ImportedFeatures features;
  Result<FeatureMatrix> matrix =
      fail(ErrorCode::kInvalid, "expected a .npy or a .safetensors file");
  if (path.ends_with(".npy")) {
    ASSIGN_OR_RETURN(features.npy_, storage::MappedFile::open(path));
    matrix = parse_npy(features.npy_.bytes());
  } else if (path.ends_with(".safetensors")) {
    ASSIGN_OR_RETURN(features.safetensors_, storage::Safetensors::open(path));
    matrix = matrix_in(features.safetensors_);
  }
  if (!matrix) return named(path, matrix.error());
  features.matrix_ = *matrix;
  return features;
}

}  // namespace skerry::diffusion
