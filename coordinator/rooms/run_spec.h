// SPDX-License-Identifier: Apache-2.0
// Validation of a run's specification. Pure functions.
#pragma once

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::coordinator {

// Checks everything but the dataset and the model.
Result<void> check_spec(const pb::RunSpec& spec);

// RETURNS: the model of a run on this dataset.
// ON FAILURE: kInvalid, which names what to change.
Result<pb::ModelSpec> model_for(const pb::RunSpec& spec, const pb::DatasetAdd& content);

}  // namespace skerry::coordinator
