// SPDX-License-Identifier: Apache-2.0
// The encoder of an autoencoder as an ImageEncoder. Does not include LibTorch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/formats/image_encoder.h"

namespace skerry::diffusion {

// Opens the folder of an AutoencoderKL, or an encoder as TorchScript, in fp32.
// `scaling`: of TorchScript; a folder says it itself.
// `device`, `threads`: as open_device().
// ON FAILURE: kInvalid: a folder, and `scaling` beside it. As
// Autoencoder::open().
Result<std::unique_ptr<ImageEncoder>> open_image_encoder(
    const std::string& path, int device, std::uint32_t threads,
    const std::optional<LatentScaling>& scaling);

// RETURNS: a hash of the autoencoder's files.
Result<Hash> autoencoder_hash(const std::string& path);

}  // namespace skerry::diffusion
