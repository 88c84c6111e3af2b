// SPDX-License-Identifier: Apache-2.0
// The weights of a model as Hugging Face's folders hold them: STEM.safetensors,
// or several files that STEM.safetensors.index.json lists. Files are mapped,
// not read.
// ON FAILURE: the message names the file.
// THREADS: any; immutable after open().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

class WeightFiles {
 public:
  // ON FAILURE: kNotFound: neither form is in `folder`, or a listed file is
  // missing. kCorrupt: a file or the list breaks its format.
  static Result<WeightFiles> open(const std::string& folder, const std::string& stem);
  bool contains(const std::string& name) const { return of_.contains(name); }
  // RETURNS: a tensor of floats (F32, F16 or BF16) of this shape. LIFETIME: the
  // data live as long as this object.
  // ON FAILURE: kCorrupt: it is missing, or of another shape or type.
  Result<storage::TensorView> tensor(const std::string& name,
                                     const std::vector<std::int64_t>& shape) const;

 private:
  Result<void> add(const std::string& path);

  std::string list_;  // what should name every tensor
  std::vector<std::pair<std::string, storage::Safetensors>> files_;  // by path
  std::map<std::string, std::size_t> of_;                            // tensor → file
};

}  // namespace skerry::diffusion
