// SPDX-License-Identifier: Apache-2.0
// Images from an ensemble that is in memory: what sample_ensemble does once it
// has loaded one. Includes LibTorch: for this folder only.
#pragma once

#include "diffusion/router/router.h"
#include "diffusion/sample/ensemble.h"
#include "diffusion/sample/sample.h"

namespace skerry::diffusion {

// `router` is asked by the routes that mix; nullptr: the one of the ensemble's
// folder. Each step is computed where the ensemble is; of a mixing route only
// the weights of the experts [B,K] come to the host, to choose the rows that
// each one gets.
// ON FAILURE: as sample_ensemble. THREADS: one at a time.
Result<Samples> draw_samples(Ensemble& ensemble, const SampleSpec& spec,
                             const SampleProgress& progress, Router* router = nullptr);

}  // namespace skerry::diffusion
