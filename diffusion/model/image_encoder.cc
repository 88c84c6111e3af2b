// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/image_encoder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "diffusion/model/autoencoder.h"
#include "diffusion/runtime/device.h"
#include "storage/files.h"

namespace skerry::diffusion {
namespace {

class AutoencoderEncoder final : public ImageEncoder {
 public:
  AutoencoderEncoder(Autoencoder autoencoder, const LatentScaling& scaling, torch::Device device)
      : autoencoder_(std::move(autoencoder)), scaling_(scaling), device_(device) {}

  LatentScaling scaling() const override { return scaling_; }

  Result<std::vector<Latent>> encode(const std::vector<Image>& images) override {
    ASSIGN_OR_RETURN(const at::Tensor means, encode_batch(images));
    const auto channels = static_cast<int>(means.size(1)), size = static_cast<int>(means.size(2));
    if (images.front().width % size != 0) {
      return fail(ErrorCode::kInvalid,
                  text("the autoencoder makes latents of ", size, " of images of ",
                       images.front().width, ", which do not decode to that size: choose another ",
                       "--image-size, such as ", size * (images.front().width / size)));
    }
    const std::int64_t each = means.numel() / means.size(0);
    std::vector<Latent> latents;
    for (std::int64_t i = 0; i < means.size(0); ++i) {
      const float* const values = means.const_data_ptr<float>() + i * each;
      latents.push_back({channels, size, std::vector<float>(values, values + each)});
    }
    return latents;
  }

 private:
  // [n,C,s,s] on the host.
  Result<at::Tensor> encode_batch(const std::vector<Image>& images) {
    return guarded([&]() -> Result<at::Tensor> {
      std::vector<at::Tensor> planes;
      for (const Image& image : images) {
        const at::Tensor pixels =
            at::from_blob(const_cast<std::uint8_t*>(image.pixels.data()),
                          {image.height, image.width, image.channels}, at::kByte);
        planes.push_back(pixels.permute({2, 0, 1}).expand({3, image.height, image.width}));
      }
      const at::Tensor x = at::stack(planes).to(device_).to(at::kFloat).div_(127.5).sub_(1);
      ASSIGN_OR_RETURN(const at::Tensor means, autoencoder_.encode(x));
      return means.to(at::kFloat).cpu().contiguous();
    });
  }

  Autoencoder autoencoder_;
  LatentScaling scaling_;
  torch::Device device_;
};

}  // namespace

Result<std::unique_ptr<ImageEncoder>> open_image_encoder(
    const std::string& path, int device, std::uint32_t threads,
    const std::optional<LatentScaling>& scaling) {
  ASSIGN_OR_RETURN(const torch::Device opened, open_device(device, threads));
  ASSIGN_OR_RETURN(Autoencoder autoencoder,
                   Autoencoder::open(path, AutoencoderHalf::kEncoder, opened));
  const std::optional<LatentScaling> own = autoencoder.scaling();
  if (own && scaling) {
    return fail(ErrorCode::kInvalid,
                text(path, " says how its latents are scaled (", own->scale, ", shift ", own->shift,
                     "): leave --latent-scale and --latent-shift out"));
  }
  return std::make_unique<AutoencoderEncoder>(
      std::move(autoencoder), own ? *own : scaling.value_or(LatentScaling{}), opened);
}

Result<Hash> autoencoder_hash(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> files{path};
  std::error_code error;
  if (fs::is_directory(path, error))
    files = {path + "/config.json", path + "/diffusion_pytorch_model.safetensors"};
  Hasher hasher;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const storage::MappedFile mapped, storage::MappedFile::open(file));
    hasher.update(blake2b(mapped.bytes()).view());
  }
  return hasher.finish();
}

}  // namespace skerry::diffusion
