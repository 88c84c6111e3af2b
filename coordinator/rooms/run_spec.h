// SPDX-License-Identifier: Apache-2.0
// What a run file may say. Plain functions of a run's specification.
#pragma once

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::coordinator {

// Checks everything but the dataset and the model.
Result<void> check_spec(const pb::RunSpec& spec);

// The model of a run on this dataset.
// ON FAILURE: kInvalid, with what to change.
Result<pb::ModelSpec> model_for(const pb::RunSpec& spec, const pb::DatasetAdd& content);

}  // namespace skerry::coordinator
