// SPDX-License-Identifier: Apache-2.0
// README.md of an ensemble folder: what the model is, what it learned from, how
// far it came, how to use it. What only its owner can know, the licences above
// all, is left open and marked so.
#pragma once

#include <string>

#include "protocol/skerry.pb.h"

namespace skerry::cli {

// Names from the coordinator are shown as Markdown text, never as markup.
// `folder`: where the router's file is in place.
std::string model_card(const pb::EnsembleReply& ensemble, const std::string& folder);

}  // namespace skerry::cli
