// SPDX-License-Identifier: Apache-2.0
// The parameters of a DiT or a PixArt by name and shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace skerry {

// The sines and cosines that the time embedder gets.
inline constexpr std::int64_t kTimeFeatures = 256;

struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
};
// RETURNS: every parameter of the model, in the order of training, snapshots
// and the optimiser.
std::vector<ParameterShape> parameter_shapes(const ModelSpec& model);

// RETURNS: whether that parameter is the matrix of a linear layer; patches are
// embedded by one. Tables and biases are none.
inline bool is_linear_weight(std::string_view name) {
  return name.ends_with(".weight") && !name.ends_with("table.weight");
}

// RETURNS: whether the fast kernels of a card compute this model. There a
// thread holds eight numbers, and a block has 512 threads with the registers
// for that.
inline bool card_kernels_serve(const ModelSpec& model) { return model.width <= 4096; }

}  // namespace skerry
