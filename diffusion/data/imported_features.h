// SPDX-License-Identifier: Apache-2.0
// A file of features beside the images: .npy, or .safetensors with a tensor
// `features` or with one tensor. Does not include LibTorch.
// ON FAILURE: every error names the file.
#pragma once

#include <string>

#include "base/result.h"
#include "diffusion/formats/npy.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

class ImportedFeatures {
 public:
  static Result<ImportedFeatures> open(const std::string& path);
  const FeatureMatrix& matrix() const { return matrix_; }  // LIFETIME: this object's

 private:
  storage::MappedFile npy_;
  storage::Safetensors safetensors_;
  FeatureMatrix matrix_;
};

}  // namespace skerry::diffusion
