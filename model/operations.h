// SPDX-License-Identifier: Apache-2.0
// How much a training step computes, and how much a card could.
#pragma once

#include <optional>
#include <string>

#include "model/spec.h"

namespace skerry {

// RETURNS: the floating-point operations of one sample's forward pass through
// an expert, with a caption of caption_tokens. It counts matrix products only,
// with an addition and a multiplication each. Training takes three times as
// many, without what gradient checkpointing repeats.
double forward_flops(const ModelSpec& model);

// RETURNS: operations a second of a card's dense matrix products in this
// precision, as its maker publishes them; nullopt: not known. `device_name` is
// the driver's name of the card.
// - bf16: tensor cores that sum in fp32.
// - fp32: no TF32, which the engine does not use.
std::optional<double> published_peak(const std::string& device_name, const std::string& precision);

}  // namespace skerry
