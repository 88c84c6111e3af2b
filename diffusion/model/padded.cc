// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/padded.h"

#include <algorithm>
#include <cstring>

namespace skerry::diffusion {

Condition padded(const std::vector<std::string_view>& captions, std::uint32_t dim, bool pinned) {
  const std::size_t row_bytes = dim * sizeof(at::Half);
  std::size_t longest = 0;
  for (const std::string_view caption : captions)
    longest = std::max(longest, caption.size() / row_bytes);
  const auto batch = static_cast<std::int64_t>(captions.size());
  const auto tokens = static_cast<std::int64_t>(longest);
  const at::TensorOptions floats = at::TensorOptions(at::kFloat).pinned_memory(pinned);
  Condition out;
  out.captions = at::zeros({batch, tokens, dim}, floats.dtype(at::kHalf));
  out.mask = at::zeros({batch, tokens}, floats);
  for (std::size_t i = 0; i < captions.size(); ++i) {
    std::memcpy(static_cast<char*>(out.captions.data_ptr()) + i * longest * row_bytes,
                captions[i].data(), captions[i].size());
    std::fill_n(out.mask.data_ptr<float>() + i * longest, captions[i].size() / row_bytes, 1.0F);
  }
  return out;
}

}  // namespace skerry::diffusion
