// SPDX-License-Identifier: Apache-2.0
// Writes README.md, the model card of an ensemble folder: the model, its
// dataset, its progress and its use. Fields that only the owner can fill in,
// such as the licences, are marked as open.
#pragma once

#include <string>

#include "protocol/skerry.pb.h"

namespace skerry::cli {

// Names from the coordinator appear as Markdown text, never as markup.
// `folder`: the ensemble folder, with the router's file in place.
std::string model_card(const pb::EnsembleReply& ensemble, const std::string& folder);

}  // namespace skerry::cli
