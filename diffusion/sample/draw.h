// SPDX-License-Identifier: Apache-2.0
// Draws images from an ensemble in memory; sample_ensemble() calls it once it
// has loaded one. Includes LibTorch: for this folder only.
#pragma once

#include "diffusion/router/router.h"
#include "diffusion/sample/ensemble.h"
#include "diffusion/sample/sample.h"

namespace skerry::diffusion {

// Mixing routes ask `router`; nullptr: the one of the ensemble's folder. Each
// step runs on the ensemble's device. For a mixing route only the weights of
// the experts [B,K] come to the host, to choose the rows of each expert.
// ON FAILURE: as sample_ensemble().
// THREADS: one at a time.
Result<Samples> draw_samples(Ensemble& ensemble, const SampleSpec& spec,
                             const SampleProgress& progress, Router* router = nullptr);

}  // namespace skerry::diffusion
